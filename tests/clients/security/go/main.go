// Runs commands with franz-go, as ../programs.py describes.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	patience = 20 * time.Second
	pause    = 100 * time.Millisecond
)

type login struct {
	Bootstrap, Protocol, Mechanism, User, Password, Token, Ca, Certificate string
}

func main() {
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		value, err := act(strings.Fields(commands.Text()))
		if err != nil {
			value = "error " + strings.ReplaceAll(fmt.Sprintf("%T: %v", err, err), "\n", " ")
		} else {
			value = "ok " + value
		}
		fmt.Println(value)
	}
}

func act(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := os.ReadFile(words[1])
	if err != nil {
		return "", err
	}
	var who login
	if err := json.Unmarshal(text, &who); err != nil {
		return "", err
	}
	options, err := who.options()
	if err != nil {
		return "", err
	}
	topic := words[2]
	if words[0] == "round" {
		from := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil { // a client that produces retries for long instead
		return "", err
	}
	if words[0] == "session" {
		return session(ctx, client, topic, words[3])
	}
	record := &kgo.Record{Topic: topic, Value: []byte("from franz-go")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return "", err
	}
	fetched := client.PollRecords(ctx, 1)
	if err := fetched.Err(); err != nil {
		return "", err
	}
	return string(fetched.Records()[0].Value), nil
}

func session(ctx context.Context, client *kgo.Client, topic, milliseconds string) (string, error) {
	count, err := strconv.Atoi(milliseconds)
	if err != nil {
		return "", err
	}
	end := time.Now().Add(time.Duration(count) * time.Millisecond)
	delivered := 0
	for time.Now().Before(end) {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			return "", err
		}
		delivered++
		time.Sleep(pause)
	}
	return strconv.Itoa(delivered), nil
}

func (who login) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(who.Bootstrap),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if strings.HasSuffix(who.Protocol, "SSL") {
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		trusted, err := os.ReadFile(who.Ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs.AppendCertsFromPEM(trusted)
		if who.Certificate != "" {
			pair, err := tls.LoadX509KeyPair(who.Certificate, who.Certificate)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	mechanism, err := who.mechanism()
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, err
}

func (who login) mechanism() (sasl.Mechanism, error) {
	switch who.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Auth{User: who.User, Pass: who.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: who.User, Pass: who.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: who.User, Pass: who.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(who.Token)
			return oauth.Auth{Token: string(token)}, err
		}), nil
	}
	return nil, errors.New(who.Mechanism)
}
