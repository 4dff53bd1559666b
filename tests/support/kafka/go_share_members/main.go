// Members of a share group with franz-go. Arguments, output and end are those of ShareMembers.java; of the settings, it
// takes bootstrap.servers, group.id and max.poll.records.
package main

import (
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

// Writes lines at once, by one write.
func tell(lines *strings.Builder) {
	if _, err := os.Stdout.WriteString(lines.String()); err != nil {
		os.Exit(1) // nobody reads any more
	}
	lines.Reset()
}

type member struct {
	id                 int
	released, rejected int64
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
	var lines strings.Builder
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, pollTime)
		fetches := client.PollFetches(waiting)
		cancel()
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				fmt.Fprintf(&lines, "X %d %d %s\n", m.id, partition, oneLine(err))
			}
		})
		records := fetches.Records()
		for _, record := range records {
			letter := letters[m.how(record)]
			fmt.Fprintf(&lines, "G %d %d %d %d %s\n", m.id, record.Partition, record.Offset, record.DeliveryCount(), letter)
		}
		tell(&lines)
		for _, record := range records {
			record.Ack(m.how(record))
		}
		if err := client.FlushAcks(context.Background()); err != nil {
			return err
		}
		m.mutex.Lock()
		for _, record := range records {
			if err := m.failed[record.Partition]; err != nil {
				fmt.Fprintf(&lines, "E %d %d %d %s\n", m.id, record.Partition, record.Offset, oneLine(err))
			} else {
				fmt.Fprintf(&lines, "D %d %d %d\n", m.id, record.Partition, record.Offset)
			}
		}
		clear(m.failed)
		m.mutex.Unlock()
		tell(&lines)
	}
	client.LeaveGroup()
	client.Close()
	return nil
}

func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func number(text string) int64 {
	found, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	topic, first, members := os.Args[1], int(number(os.Args[2])), int(number(os.Args[3]))
	settings := map[string]string{}
	for _, setting := range os.Args[6:] {
		key, value, _ := strings.Cut(setting, "=")
		settings[key] = value
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for id := range members {
		m := &member{
			id: first + id, released: number(os.Args[4]), rejected: number(os.Args[5]), failed: map[int32]error{},
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
}
