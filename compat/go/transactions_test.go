package compat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

type account struct {
	Balance int `json:"balance"`
}

// How a client process that is going to be killed learns what to do, and with which documents.
const doomedMode, doomedPrefix = "SETTEE_DOOMED", "SETTEE_DOOMED_PREFIX"

// committedDocuments are so many that a client can be killed before it has finished all of them.
const committedDocuments = 300

// transactional gives a client whose transactions are on disk when they are acknowledged.
func transactional(t *testing.T, timeout time.Duration) (*gocb.Cluster, *gocb.Collection) {
	t.Helper()
	return transactionalAt(t, os.Getenv("SETTEE_ADDRESS"), timeout)
}

func transactionalAt(t *testing.T, address string, timeout time.Duration) (*gocb.Cluster, *gocb.Collection) {
	t.Helper()
	options := gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{
			Username: os.Getenv("SETTEE_USERNAME"), Password: os.Getenv("SETTEE_PASSWORD"),
		},
		TransactionsConfig: gocb.TransactionsConfig{
			DurabilityLevel: gocb.DurabilityLevelPersistToMajority,
			Timeout:         timeout,
			CleanupConfig: gocb.TransactionsCleanupConfig{
				CleanupWindow: 2 * time.Second,
				// Otherwise a client looks after the collections that it has run transactions in.
				CleanupCollections: []gocb.TransactionKeyspace{
					{BucketName: "main", ScopeName: "_default", CollectionName: "_default"},
				},
			},
		},
	}
	cluster := must[*gocb.Cluster](t)(gocb.Connect("couchbase://"+address, options))
	t.Cleanup(func() { _ = cluster.Close(nil) })
	bucket := cluster.Bucket("main")
	if err := bucket.WaitUntilReady(patience, nil); err != nil {
		t.Fatal(err)
	}
	return cluster, bucket.DefaultCollection()
}

func run(t *testing.T, cluster *gocb.Cluster, logic gocb.AttemptFunc) {
	t.Helper()
	if _, err := cluster.Transactions().Run(logic, nil); err != nil {
		t.Fatal(err)
	}
}

// change replaces a document by what update makes of it.
func change(attempt *gocb.TransactionAttemptContext, collection *gocb.Collection, key string, update func(*account)) error {
	read, err := attempt.Get(collection, key)
	if err != nil {
		return err
	}
	var content account
	if err := read.Content(&content); err != nil {
		return err
	}
	update(&content)
	_, err = attempt.Replace(read, content)
	return err
}

func remove(attempt *gocb.TransactionAttemptContext, collection *gocb.Collection, key string) error {
	read, err := attempt.Get(collection, key)
	if err != nil {
		return err
	}
	return attempt.Remove(read)
}

func balance(t *testing.T, collection *gocb.Collection, key string) int {
	t.Helper()
	var read account
	if err := must[*gocb.GetResult](t)(collection.Get(key, nil)).Content(&read); err != nil {
		t.Fatal(err)
	}
	return read.Balance
}

func open(t *testing.T, collection *gocb.Collection, keys ...string) {
	t.Helper()
	for _, key := range keys {
		must[*gocb.MutationResult](t)(collection.Upsert(key, account{100}, nil))
	}
}

func isStaged(t *testing.T, collection *gocb.Collection, key string) bool {
	t.Helper()
	specs := []gocb.LookupInSpec{gocb.ExistsSpec("txn", &gocb.ExistsSpecOptions{IsXattr: true})}
	return must[*gocb.LookupInResult](t)(collection.LookupIn(key, specs, nil)).Exists(0)
}

func happens(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(40 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("%s did not happen in time", what)
}

func TestTransactionCommits(t *testing.T) {
	cluster, collection := transactional(t, patience)
	key := newKey()
	open(t, collection, key+"-a", key+"-b")
	run(t, cluster, func(attempt *gocb.TransactionAttemptContext) error {
		if err := change(attempt, collection, key+"-a", func(a *account) { a.Balance++ }); err != nil {
			return err
		}
		if err := remove(attempt, collection, key+"-b"); err != nil {
			return err
		}
		if _, err := attempt.Insert(collection, key+"-c", account{3}); err != nil {
			return err
		}
		if balance(t, collection, key+"-a") != 100 || !isStaged(t, collection, key+"-a") {
			t.Error("others see what is not committed")
		}
		return change(attempt, collection, key+"-c", func(a *account) { a.Balance++ })
	})
	equal(t, []int{balance(t, collection, key+"-a"), balance(t, collection, key+"-c")}, []int{101, 4})
	_, err := collection.Get(key+"-b", nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	equal(t, isStaged(t, collection, key+"-a"), false)
}

func TestTransactionRollsBack(t *testing.T) {
	cluster, collection := transactional(t, patience)
	key := newKey()
	open(t, collection, key+"-a", key+"-b")
	changedMind := errors.New("changed my mind")
	_, err := cluster.Transactions().Run(func(attempt *gocb.TransactionAttemptContext) error {
		if err := change(attempt, collection, key+"-a", func(a *account) { a.Balance++ }); err != nil {
			return err
		}
		if err := remove(attempt, collection, key+"-b"); err != nil {
			return err
		}
		if _, err := attempt.Insert(collection, key+"-c", account{3}); err != nil {
			return err
		}
		return changedMind
	}, nil)
	wantError(t, err, changedMind)
	for _, name := range []string{key + "-a", key + "-b"} {
		equal(t, balance(t, collection, name), 100)
		equal(t, isStaged(t, collection, name), false)
	}
	_, err = collection.Get(key+"-c", nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	run(t, cluster, func(attempt *gocb.TransactionAttemptContext) error {
		_, err := attempt.Insert(collection, key+"-c", account{5})
		return err
	})
	equal(t, balance(t, collection, key+"-c"), 5)
}

func TestTransactionsThatMeetAreRunAgain(t *testing.T) {
	cluster, collection := transactional(t, 30*time.Second)
	key := newKey()
	open(t, collection, key)
	tries := 0
	run(t, cluster, func(attempt *gocb.TransactionAttemptContext) error {
		tries++
		return change(attempt, collection, key, func(a *account) {
			if tries == 1 {
				open(t, collection, key)
			}
			a.Balance++
		})
	})
	if tries < 2 || balance(t, collection, key) != 101 {
		t.Fatalf("%d tries, balance %d", tries, balance(t, collection, key))
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for range 5 {
				if _, err := cluster.Transactions().Run(func(attempt *gocb.TransactionAttemptContext) error {
					return change(attempt, collection, key, func(a *account) { a.Balance++ })
				}, nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	writers.Wait()
	equal(t, balance(t, collection, key), 121)
}

func TestTransactionExpires(t *testing.T) {
	cluster, collection := transactional(t, time.Second)
	key := newKey()
	open(t, collection, key)
	_, err := cluster.Transactions().Run(func(attempt *gocb.TransactionAttemptContext) error {
		if err := change(attempt, collection, key, func(a *account) { a.Balance++ }); err != nil {
			return err
		}
		time.Sleep(1500 * time.Millisecond)
		_, err := attempt.Get(collection, key)
		return err
	}, nil)
	var expired *gocb.TransactionExpiredError
	if !errors.As(err, &expired) {
		t.Fatalf("got %v", err)
	}
	equal(t, balance(t, collection, key), 100)
	// Whether the attempt was rolled back by itself, or forgotten by a clean-up that came in between and left its change
	// staged: it is in nobody's way.
	run(t, cluster, func(attempt *gocb.TransactionAttemptContext) error {
		return change(attempt, collection, key, func(a *account) { a.Balance += 2 })
	})
	equal(t, balance(t, collection, key), 102)
	equal(t, isStaged(t, collection, key), false)
}

// TestDoomed is the client process that other tests kill.
func TestDoomed(t *testing.T) {
	mode, prefix := os.Getenv(doomedMode), os.Getenv(doomedPrefix)
	if mode == "" {
		t.Skip("runs as a process of its own")
	}
	timeout := patience
	if mode == "stage" {
		timeout = 2 * time.Second
	}
	cluster, collection := transactional(t, timeout)
	raise := func(a *account) { a.Balance++ }
	_, _ = cluster.Transactions().Run(func(attempt *gocb.TransactionAttemptContext) error {
		for number := range committedDocuments {
			if err := change(attempt, collection, fmt.Sprintf("%s-%d", prefix, number), raise); err != nil {
				return err
			}
			if mode == "stage" {
				break
			}
		}
		fmt.Println("staged")
		if mode == "stage" {
			time.Sleep(time.Hour)
		}
		return nil
	}, nil)
	time.Sleep(time.Hour)
}

// doomed starts a client process, waits until it has staged its changes, and gives the means to kill it.
func doomed(t *testing.T, mode, prefix string) (kill func()) {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^TestDoomed$")
	process.Env = append(os.Environ(), doomedMode+"="+mode, doomedPrefix+"="+prefix)
	output := must[io.ReadCloser](t)(process.StdoutPipe())
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == "staged" {
			return kill
		}
	}
	t.Fatal("the client ended by itself")
	return nil
}

func TestWhatAKilledClientStagedIsInNobodysWay(t *testing.T) {
	cluster, collection := transactional(t, 60*time.Second)
	key := newKey()
	open(t, collection, key+"-0")
	doomed(t, "stage", key)()
	equal(t, isStaged(t, collection, key+"-0"), true)
	equal(t, balance(t, collection, key+"-0"), 100)
	run(t, cluster, func(attempt *gocb.TransactionAttemptContext) error {
		return change(attempt, collection, key+"-0", func(a *account) { a.Balance += 2 })
	})
	equal(t, balance(t, collection, key+"-0"), 102)
	equal(t, isStaged(t, collection, key+"-0"), false)
}

// awaitCommit waits until the attempt that has staged a change of this document is committed: no matter what becomes of
// its client, it counts from there on.
func awaitCommit(t *testing.T, collection *gocb.Collection, key string) {
	t.Helper()
	var staged struct {
		ID  struct{ Atmpt string }
		Atr struct{ ID string }
	}
	result := must[*gocb.LookupInResult](t)(collection.LookupIn(key, []gocb.LookupInSpec{gocb.GetSpec("txn", inXattr)}, nil))
	if err := result.ContentAt(0, &staged); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); time.Now().Before(until); {
		specs := []gocb.LookupInSpec{gocb.GetSpec("attempts."+staged.ID.Atmpt+".st", inXattr)}
		var state string
		record := must[*gocb.LookupInResult](t)(collection.LookupIn(staged.Atr.ID, specs, nil))
		if err := record.ContentAt(0, &state); err != nil || state == "COMMITTED" {
			return
		}
	}
	t.Fatal("no commit in time")
}

func TestWhatAKilledClientCommittedIsFinishedByAnother(t *testing.T) {
	_, collection := transactional(t, patience)
	key := newKey()
	names := make([]string, committedDocuments)
	for number := range names {
		names[number] = fmt.Sprintf("%s-%d", key, number)
	}
	open(t, collection, names...)
	kill := doomed(t, "commit", key)
	awaitCommit(t, collection, names[0])
	kill()
	left := 0
	for _, name := range names {
		if isStaged(t, collection, name) {
			left++
		}
	}
	t.Logf("%d of %d documents were left", left, len(names))
	for _, name := range names {
		happens(t, "the rest of the commit", func() bool {
			return !isStaged(t, collection, name) && balance(t, collection, name) == 101
		})
	}
}
