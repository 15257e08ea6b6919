package compat

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"testing"
)

// ownNode is a server that a test presses or kills while the one of the suite goes on.
type ownNode struct {
	t       *testing.T
	orders  io.WriteCloser
	answers *bufio.Scanner
}

// startNode starts a node with a bucket main on an address of its own; see compat/harness/settee/on_order.py.
func startNode(t *testing.T, address, name string, options ...string) *ownNode {
	t.Helper()
	process := exec.Command("python3", append([]string{"-m", "settee.on_order", address, name}, options...)...)
	orders := must[io.WriteCloser](t)(process.StdinPipe())
	answers := bufio.NewScanner(must[io.ReadCloser](t)(process.StdoutPipe()))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = orders.Close()
		if err := process.Wait(); err != nil {
			t.Errorf("the node did not end well: %v", err)
		}
	})
	node := &ownNode{t, orders, answers}
	equal(t, node.answer(), "ready")
	return node
}

func (node *ownNode) answer() string {
	node.t.Helper()
	if !node.answers.Scan() {
		node.t.Fatal("the node's process has ended")
	}
	return node.answers.Text()
}

// tell gives an order and returns the answer.
func (node *ownNode) tell(order string) string {
	node.t.Helper()
	_ = must[int](node.t)(fmt.Fprintln(node.orders, order))
	return node.answer()
}
