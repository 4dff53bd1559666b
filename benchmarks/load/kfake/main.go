// A single broker of franz-go's kfake on 127.0.0.1, until SIGTERM: `kfake PORT`; `kfake --version`.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

const module = "github.com/twmb/franz-go/pkg/kfake"

func main() {
	if len(os.Args) != 2 {
		fail("kfake PORT")
	}
	if os.Args[1] == "--version" {
		fmt.Println("kfake, version", version())
		return
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port))
	if err != nil {
		fail(err)
	}
	<-ended
	cluster.Close()
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, each := range info.Deps {
			if each.Path == module {
				return each.Version
			}
		}
	}
	return "unknown"
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
