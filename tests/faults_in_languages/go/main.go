// Does with franz-go what it is told, a line each on stdin, and says on stdout how the client saw it end: `ok`, or
// `error CODE NAME`. The argument is the bootstrap servers. The commands are in ../languages.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 30 * time.Second

func main() {
	seeds := strings.Split(os.Args[1], ",")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		fmt.Println(told(act(seeds, strings.Fields(commands.Text()))))
	}
}

func told(err error) string {
	var known *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &known):
		return fmt.Sprintf("error %d %s %v", known.Code, known.Message, err)
	default:
		return fmt.Sprintf("error -1 none %v", err)
	}
}

func act(seeds, words []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("go"),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	switch words[0] {
	case "consume":
		from := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{words[1]: from}))
	case "join":
		options = append(options, kgo.ConsumeTopics(words[1]), kgo.ConsumerGroup(words[2]),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	switch words[0] {
	case "produce":
		return client.ProduceSync(ctx, &kgo.Record{Topic: words[1], Value: []byte("from go")}).FirstErr()
	case "consume", "join":
		return client.PollRecords(ctx, 1).Err()
	case "create":
		return create(ctx, client, words[1])
	}
	return errors.New(words[0])
}

func create(ctx context.Context, client *kgo.Client, topic string) error {
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}
