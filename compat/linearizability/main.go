// Holds recorded histories of registers and counters against the claim that they are linearisable, key by key.
//
//	go run . HISTORY.jsonl [SECONDS]
//
// A line of a history is an operation: {"client", "kind", "key", "op", "value", "call", "return", "result"}. An operation
// without "return" may have happened at any time after its call, or never. See crates/torture/src/chaos/history.rs.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// Of the keys so many in a hundred may be undecided. None are where the checker gets the time it is given: an hour's history
// takes it seconds, since the recorder leaves a key for a new one before it gets too hard.
const undecidedMax = 1

// absent is the state of a key that nobody has written.
const absent = int64(-1)

type line struct {
	Client int    `json:"client"`
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Op     string `json:"op"`
	Value  int64  `json:"value"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	Result *int64 `json:"result"`
}

// input is what was asked.
type input struct {
	op    string
	value int64
}

// output is what was answered; nothing is known of an operation that is lost.
type output struct {
	lost   bool
	result int64
}

// register holds the value last written to it.
var register = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, in, out any) (bool, any) {
		asked, told := in.(input), out.(output)
		if asked.op == "write" {
			return true, asked.value
		}
		return told.result == state.(int64), state
	},
	DescribeOperation: describe,
}

// counter counts how often one was added to it; the first time makes it.
var counter = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, in, out any) (bool, any) {
		asked, told := in.(input), out.(output)
		current := state.(int64)
		if asked.op == "add" {
			next := max(current, 0) + 1
			return told.lost || told.result == next, next
		}
		return told.result == current, state
	},
	DescribeOperation: describe,
}

func describe(in, out any) string {
	asked, told := in.(input), out.(output)
	switch {
	case told.lost:
		return fmt.Sprintf("%s(%d) -> ?", asked.op, asked.value)
	default:
		return fmt.Sprintf("%s(%d) -> %d", asked.op, asked.value, told.result)
	}
}

func main() {
	if len(os.Args) < 2 {
		fail("usage: linearizability HISTORY.jsonl [SECONDS]")
	}
	patience := 120 * time.Second
	if len(os.Args) > 2 {
		seconds, err := strconv.ParseFloat(os.Args[2], 64)
		if err != nil {
			fail("%q is no number of seconds", os.Args[2])
		}
		patience = time.Duration(seconds * float64(time.Second))
	}
	histories, err := read(os.Args[1])
	if err != nil {
		fail("%s: %v", os.Args[1], err)
	}
	if len(histories) == 0 {
		fail("%s: no operations", os.Args[1])
	}
	until, operations, undecided, unsaid := time.Now().Add(patience), 0, 0, 0
	keys := make([]string, 0, len(histories))
	for key := range histories {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		history := histories[key]
		operations += len(history.operations)
		result, info := porcupine.CheckOperationsVerbose(history.model, history.operations, max(time.Until(until), time.Second))
		switch result {
		case porcupine.Illegal:
			picture := os.Args[1] + "." + key + ".html"
			if err := porcupine.VisualizePath(history.model, info, picture); err != nil {
				picture = err.Error()
			}
			fail("%s is not linearisable (%d operations): %s", key, len(history.operations), picture)
		case porcupine.Unknown:
			fmt.Printf("%s: %d operations, not decided in time\n", key, len(history.operations))
			undecided++
			unsaid += len(history.operations)
		}
	}
	if tooMany(undecided, len(keys)) {
		fail("%d of %d keys with %d of %d operations are undecided: this says too little", undecided, len(keys), unsaid, operations)
	}
	fmt.Printf("%d operations on %d keys are linearisable; undecided: %d operations on %d keys\n",
		operations-unsaid, len(keys)-undecided, unsaid, undecided)
}

// tooMany says whether so many undecided keys leave too much unsaid.
func tooMany(undecided, keys int) bool {
	return undecided*100 > keys*undecidedMax
}

type history struct {
	model      porcupine.Model
	operations []porcupine.Operation
}

func read(path string) (map[string]*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	histories := map[string]*history{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		of, known := histories[one.Key]
		if !known {
			switch one.Kind {
			case "register":
				of = &history{model: register}
			case "counter":
				of = &history{model: counter}
			default:
				return nil, fmt.Errorf("line %d: no such kind: %q", number, one.Kind)
			}
			histories[one.Key] = of
		}
		operation := porcupine.Operation{
			ClientId: one.Client,
			Input:    input{one.Op, one.Value},
			Call:     one.Call,
			Output:   output{lost: true},
			Return:   math.MaxInt64,
		}
		if one.Return != nil {
			told := output{result: absent}
			if one.Result != nil {
				told.result = *one.Result
			}
			operation.Output, operation.Return = told, *one.Return
		}
		of.operations = append(of.operations, operation)
	}
	return histories, lines.Err()
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
