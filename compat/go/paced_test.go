package compat

import (
	crypto "crypto/rand"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// pacedAddress is that of the server that is pressed; the one of the suite goes on.
const pacedAddress = "127.0.31.18"

// pacing is the pressure from which on mutations are held to what the disk takes.
const pacing = 3

// failures gathers what a client told its application.
type failures struct {
	sync.Mutex
	errors []error
}

func (all *failures) note(err error) {
	if err != nil {
		all.Lock()
		all.errors = append(all.errors, err)
		all.Unlock()
	}
}

// More writes than the disk takes, from a client as it comes: the server holds them back so far that it never notices.
func TestAnOverloadedDiskIsNoError(t *testing.T) {
	const writers, valueBytes, old = 24, 10_000, 2000
	node := startNode(t, pacedAddress, "go-paced", "--disk-bytes-per-sec", "4000000")
	cluster := must[*gocb.Cluster](t)(gocb.Connect("couchbase://"+pacedAddress, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{
			Username: os.Getenv("SETTEE_USERNAME"), Password: os.Getenv("SETTEE_PASSWORD"),
		},
	}))
	defer func() { _ = cluster.Close(nil) }()
	bucket := cluster.Bucket("main")
	if err := bucket.WaitUntilReady(patience, nil); err != nil {
		t.Fatal(err)
	}
	collection, key := bucket.DefaultCollection(), newKey()
	for number := range old {
		must[*gocb.MutationResult](t)(collection.Upsert(fmt.Sprintf("%s-old-%d", key, number), account{number}, nil))
	}
	var told failures
	stop := time.Now().Add(12 * time.Second)
	var working sync.WaitGroup
	for writer := range writers {
		working.Add(1)
		go func() {
			defer working.Done()
			value := make([]byte, valueBytes)
			options := &gocb.UpsertOptions{Transcoder: gocb.NewRawBinaryTranscoder()}
			for count := 0; time.Now().Before(stop); count++ {
				_, _ = crypto.Read(value)
				_, err := collection.Upsert(fmt.Sprintf("%s-%d-%d", key, writer, count), value, options)
				told.note(err)
			}
		}()
	}
	removed := 0
	for ; time.Now().Before(stop) && removed < old; removed++ {
		name := fmt.Sprintf("%s-old-%d", key, removed)
		equal(t, balance(t, collection, name), removed)
		_, err := collection.Remove(name, nil)
		told.note(err)
		time.Sleep(5 * time.Millisecond)
	}
	working.Wait()
	if pressure := must[int](t)(strconv.Atoi(node.tell("pressure"))); pressure < pacing {
		t.Fatalf("the disk kept up (pressure %d): nothing was tested", pressure)
	}
	if len(told.errors) > 0 {
		t.Fatalf("%d failures, the first of them: %v", len(told.errors), told.errors[0])
	}
	t.Logf("%d read and removed beside", removed)
}
