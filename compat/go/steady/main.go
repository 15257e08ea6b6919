// Steady is a steady client on the official Go SDK: see compat/steady/run.py for what such a client does and says.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	workers = 4
	keys    = 50
	pause   = 20 * time.Millisecond
)

type said map[string]any

var mouth sync.Mutex

func say(what said) {
	mouth.Lock()
	defer mouth.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(what)
}

// known is what a worker knows of a key: what was acknowledged and when, and what may have been written since.
// 0 stands for no document.
type known struct {
	value  int
	since  int64
	doubts map[int]bool
}

// worker writes its own keys one after the other and reads each back.
type worker struct {
	collection *gocb.Collection
	number     int
	kind       string
	level      gocb.DurabilityLevel
	known      [keys]known
	done       int
}

func (w *worker) key(place int) string { return fmt.Sprintf("go-%d-%d", w.number, place) }

func (w *worker) complain(op string, place int, began time.Time, err error) {
	say(said{
		"what": "error", "kind": w.kind, "op": op, "key": w.key(place), "began": began.UnixMilli(),
		"at": time.Now().UnixMilli(), "text": err.Error(),
	})
}

func (w *worker) write(place, number int) {
	began := time.Now()
	_, err := w.collection.Upsert(w.key(place), number, &gocb.UpsertOptions{DurabilityLevel: w.level})
	if err != nil {
		w.complain("write", place, began, err)
		if w.known[place].doubts == nil {
			w.known[place].doubts = map[int]bool{}
		}
		w.known[place].doubts[number] = true
		return
	}
	w.known[place] = known{value: number, since: time.Now().UnixMilli()}
}

func (w *worker) read(place int) {
	began, found := time.Now(), 0
	document, err := w.collection.Get(w.key(place), nil)
	if err == nil {
		err = document.Content(&found)
	}
	if err != nil && !errors.Is(err, gocb.ErrDocumentNotFound) {
		w.complain("read", place, began, err)
		return
	}
	known := &w.known[place]
	if found == known.value || known.doubts[found] {
		return
	}
	at := time.Now().UnixMilli()
	say(said{
		"what": "wrong", "kind": w.kind, "key": w.key(place), "acknowledged": known.since, "expected": known.value,
		"found": found, "at": at,
	})
	// Told once: from here on this is what it is.
	known.value, known.since = found, at
}

func (w *worker) work(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
		place := w.done % keys
		w.done++
		w.write(place, w.done)
		w.read(place)
	}
}

func run(seeds, username, password, bucketName string) error {
	cluster, err := gocb.Connect("couchbase://"+seeds, gocb.ClusterOptions{Username: username, Password: password})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close(nil) }()
	bucket := cluster.Bucket(bucketName)
	if err := bucket.WaitUntilReady(20*time.Second, nil); err != nil {
		return err
	}
	over := make(chan struct{})
	var all [workers]*worker
	var working sync.WaitGroup
	for number := range all {
		w := &worker{collection: bucket.DefaultCollection(), number: number, kind: "plain"}
		if number%2 == 1 {
			w.kind, w.level = "durable", gocb.DurabilityLevelMajority
		}
		all[number] = w
		working.Add(1)
		go func() {
			defer working.Done()
			w.work(over)
		}()
	}
	say(said{"what": "ready"})
	// Until the end of the input.
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(over)
	working.Wait()
	operations := 0
	for _, w := range all {
		operations += w.done
		for place := range keys {
			w.read(place)
		}
	}
	say(said{"what": "done", "operations": operations})
	return nil
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
