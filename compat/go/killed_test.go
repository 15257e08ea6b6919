package compat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// killedAddress is that of the server that is killed; the one of the suite goes on.
const killedAddress = "127.0.31.15"

// transfer moves 1 from one account to another and leaves a receipt.
func transfer(cluster *gocb.Cluster, collection *gocb.Collection, from, to, receipt string) error {
	_, err := cluster.Transactions().Run(func(attempt *gocb.TransactionAttemptContext) error {
		if err := change(attempt, collection, from, func(a *account) { a.Balance-- }); err != nil {
			return err
		}
		if err := change(attempt, collection, to, func(a *account) { a.Balance++ }); err != nil {
			return err
		}
		_, err := attempt.Insert(collection, receipt, account{1})
		return err
	}, nil)
	return err
}

// The server is killed over and over while clients transfer money. What was acknowledged has happened, nothing has
// happened in half, and what unlucky attempts left behind is in nobody's way.
func TestMoneyIsConservedWhenTheServerIsKilled(t *testing.T) {
	const accounts, workers, kills = 4, 3, 4
	node := startNode(t, killedAddress, "go-killed")
	cluster, collection := transactionalAt(t, killedAddress, patience)
	key := newKey()
	names := make([]string, accounts)
	for number := range names {
		names[number] = fmt.Sprintf("%s-%d", key, number)
	}
	durable := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
	for _, name := range names {
		must[*gocb.MutationResult](t)(collection.Upsert(name, account{100}, durable))
	}
	stop := make(chan struct{})
	receipts := make([][]string, workers)
	var working sync.WaitGroup
	for worker := range workers {
		working.Add(1)
		go func() {
			defer working.Done()
			for count := 0; ; count++ {
				select {
				case <-stop:
					return
				default:
				}
				from := rand.IntN(accounts)
				to := (from + 1 + rand.IntN(accounts-1)) % accounts
				receipt := fmt.Sprintf("%s-receipt-%d-%d", key, worker, count)
				if transfer(cluster, collection, names[from], names[to], receipt) == nil {
					receipts[worker] = append(receipts[worker], receipt)
				}
			}
		}()
	}
	for range kills {
		time.Sleep(300*time.Millisecond + rand.N(time.Second))
		equal(t, node.tell("kill"), "up")
	}
	time.Sleep(time.Second)
	close(stop)
	working.Wait()
	// Attempts that their client could not end are ended by whoever comes across them once they have expired.
	last, lastCollection := transactionalAt(t, killedAddress, time.Minute)
	run(t, last, func(attempt *gocb.TransactionAttemptContext) error {
		for _, name := range names {
			if err := change(attempt, lastCollection, name, func(*account) {}); err != nil {
				return err
			}
		}
		return nil
	})
	sum := 0
	for _, name := range names {
		sum += balance(t, lastCollection, name)
		equal(t, isStaged(t, lastCollection, name), false)
	}
	equal(t, sum, 100*accounts)
	acknowledged := slices.Concat(receipts...)
	for _, receipt := range acknowledged {
		// An acknowledged transaction is committed; some of its documents may have been left to others to unstage.
		happens(t, "the rest of a commit", func() bool {
			_, err := lastCollection.Get(receipt, nil)
			if err != nil && !errors.Is(err, gocb.ErrDocumentNotFound) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	t.Logf("%d transfers were acknowledged", len(acknowledged))
	if len(acknowledged) == 0 {
		t.Fatal("nothing was tried")
	}
}
