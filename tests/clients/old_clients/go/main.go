// Writes COUNT records to a topic with sarama and reads them in a consumer group, as an application that was set up for
// one release of Kafka. Arguments: bootstrap server, release (sarama's Config.Version), topic. Prints the values read
// and the committed offset.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/Shopify/sarama"
)

const count = 20

type reader struct {
	values chan string
}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		r.values <- string(message.Value)
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	servers, topic := []string{os.Args[1]}, os.Args[3]
	version, err := sarama.ParseKafkaVersion(os.Args[2])
	check(err)
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest

	producer, err := sarama.NewSyncProducer(servers, config)
	check(err)
	for number := 0; number < count; number++ {
		value := sarama.StringEncoder(fmt.Sprint(number))
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
		check(err)
	}
	check(producer.Close())

	group, err := sarama.NewConsumerGroup(servers, topic, config)
	check(err)
	values := make(chan string)
	session, leave := context.WithCancel(context.Background())
	go func() {
		for session.Err() == nil {
			check(group.Consume(session, []string{topic}, reader{values}))
		}
	}()
	for number := 0; number < count; number++ {
		select {
		case value := <-values:
			fmt.Println(value)
		case <-time.After(30 * time.Second):
			check(fmt.Errorf("%d of %d records", number, count))
		}
	}
	leave()
	check(group.Close()) // commits

	client, err := sarama.NewClient(servers, config)
	check(err)
	manager, err := sarama.NewOffsetManagerFromClient(topic, client)
	check(err)
	partition, err := manager.ManagePartition(topic, 0)
	check(err)
	next, _ := partition.NextOffset()
	fmt.Println("committed", next)
}
