// Members of a share group with franz-go. Arguments, output and end are those of ShareMembers.java; of the settings, it
// takes bootstrap.servers, group.id and max.poll.records.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollTime = 200 * time.Millisecond

var letters = map[kgo.AckStatus]string{kgo.AckAccept: "A", kgo.AckRelease: "L", kgo.AckReject: "R"}

type output struct {
	mutex sync.Mutex
	out   *bufio.Writer
}

func (o *output) print(format string, values ...any) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	fmt.Fprintf(o.out, format+"\n", values...)
}

func (o *output) flush() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.out.Flush() != nil {
		os.Exit(1) // nobody reads any more
	}
}

type member struct {
	id                 int
	released, rejected int64
	out                *output
	mutex              sync.Mutex
	failed             map[int32]error // by partition, since the last flush
}

func (m *member) how(record *kgo.Record) kgo.AckStatus {
	if m.rejected > 0 && record.Offset%m.rejected == m.rejected-1 {
		return kgo.AckReject
	}
	if m.released > 0 && record.Offset%m.released == 0 && record.DeliveryCount() <= 1 {
		return kgo.AckRelease
	}
	return kgo.AckAccept
}

func (m *member) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, result := range results {
		if result.Err != nil {
			m.failed[result.Partition] = result.Err
		}
	}
}

func (m *member) run(ctx context.Context, topic string, settings map[string]string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(settings["bootstrap.servers"], ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(settings["group.id"]),
		kgo.ShareAckCallback(m.acknowledged),
	}
	if most, err := strconv.Atoi(settings["max.poll.records"]); err == nil {
		options = append(options, kgo.ShareMaxRecords(int32(most)), kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, pollTime)
		fetches := client.PollFetches(waiting)
		cancel()
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				m.out.print("X %d %d %v", m.id, partition, err)
			}
		})
		records := fetches.Records()
		for _, record := range records {
			how := m.how(record)
			m.out.print("G %d %d %d %d %s", m.id, record.Partition, record.Offset, record.DeliveryCount(), letters[how])
			record.Ack(how)
		}
		if err := client.FlushAcks(context.Background()); err != nil {
			return err
		}
		m.mutex.Lock()
		for _, record := range records {
			if err := m.failed[record.Partition]; err != nil {
				m.out.print("E %d %d %d %s", m.id, record.Partition, record.Offset, strings.ReplaceAll(err.Error(), "\n", " "))
			} else {
				m.out.print("D %d %d %d", m.id, record.Partition, record.Offset)
			}
		}
		clear(m.failed)
		m.mutex.Unlock()
		m.out.flush()
	}
	client.LeaveGroup()
	client.Close()
	return nil
}

func number(text string) int64 {
	found, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	topic, members := os.Args[1], int(number(os.Args[2]))
	settings := map[string]string{}
	for _, setting := range os.Args[5:] {
		key, value, _ := strings.Cut(setting, "=")
		settings[key] = value
	}
	out := &output{out: bufio.NewWriter(os.Stdout)}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for id := range members {
		m := &member{
			id: id, released: number(os.Args[3]), rejected: number(os.Args[4]), out: out, failed: map[int32]error{},
		}
		group.Go(func() {
			if err := m.run(ctx, topic, settings); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
	io.Copy(io.Discard, os.Stdin) // until it ends
	stop()
	group.Wait()
	out.flush()
}
