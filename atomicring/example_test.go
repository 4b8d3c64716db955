package atomicring_test

import (
	"fmt"

	"github.com/ringfence-go/ringfence/atomicring"
)

func ExampleRing_Admit() {
	layout, err := atomicring.NewLayout(4, 100) // 4 slots, counts up to 100
	if err != nil {
		panic(err)
	}
	ring := layout.NewRing()
	for _, epoch := range []uint64{0, 0, 1, 3, 4} {
		a := ring.Admit(&layout, epoch, 2, 6)
		fmt.Println("epoch", epoch, a.Verdict, "total", a.Total)
	}
	// Output:
	// epoch 0 admitted total 2
	// epoch 0 admitted total 4
	// epoch 1 admitted total 6
	// epoch 3 denied total 6
	// epoch 4 admitted total 4
}

func ExampleRing_Peek() {
	layout, _ := atomicring.NewLayout(4, 100)
	ring := layout.NewRing()
	ring.Admit(&layout, 0, 5, 6)

	fmt.Println(ring.Peek(&layout, 0, 1, 6).Verdict, ring.Peek(&layout, 0, 2, 6).Verdict)
	// Output: admitted denied
}

func ExampleRing_RetryAfter() {
	layout, _ := atomicring.NewLayout(4, 100)
	ring := layout.NewRing()
	ring.Admit(&layout, 0, 2, 6)
	ring.Admit(&layout, 1, 4, 6)

	retry, reset, ok := ring.RetryAfter(&layout, 2, 3, 6)
	fmt.Println("3 units fit in epoch", retry, ok)
	fmt.Println("nothing is counted in epoch", reset)
	_, _, ok = ring.RetryAfter(&layout, 2, 7, 6)
	fmt.Println("7 units fit ever:", ok)
	// Output:
	// 3 units fit in epoch 5 true
	// nothing is counted in epoch 5
	// 7 units fit ever: false
}

func ExampleRing_Refund() {
	layout, _ := atomicring.NewLayout(4, 100)
	ring := layout.NewRing()
	a := ring.Admit(&layout, 0, 5, 6)
	fmt.Println(ring.Refund(&layout, a.Epoch, 5), ring.Peek(&layout, 0, 0, 6).Total)

	a = ring.Admit(&layout, 0, 5, 6)
	ring.Admit(&layout, 1, 1, 6) // closes epoch 0
	fmt.Println(ring.Refund(&layout, a.Epoch, 5), ring.Peek(&layout, 1, 0, 6).Total)
	// Output:
	// true 0
	// false 6
}

func ExampleRing_Snapshot() {
	layout, _ := atomicring.NewLayout(3, 100)
	ring := layout.NewRing()
	ring.Admit(&layout, 0, 5, 100)
	ring.Admit(&layout, 4, 2, 100)
	for i, slot := range ring.Snapshot(&layout) {
		fmt.Println(i, slot.Used, slot.Epoch, slot.Count)
	}
	// Output:
	// 0 true 0 5
	// 1 true 4 2
	// 2 false 0 0
}

func ExampleRing_Retire() {
	layout, _ := atomicring.NewLayout(4, 100)
	ring := layout.NewRing()
	ring.Admit(&layout, 0, 5, 6)

	_, ok := ring.Retire(&layout, 3)
	fmt.Println("at epoch 3:", ok)
	_, ok = ring.Retire(&layout, 4)
	fmt.Println("at epoch 4:", ok)
	fmt.Println(ring.Admit(&layout, 4, 1, 6).Verdict)
	// Output:
	// at epoch 3: false
	// at epoch 4: true
	// retired
}

func ExampleCell_Admit() {
	var cell atomicring.Cell
	for _, now := range []uint64{1000, 1400, 1999, 2000} { // milliseconds
		a := cell.Admit(now, 1000, 1, 2)
		fmt.Println(now, a.Verdict, a.Count, "until", a.Deadline)
	}
	// Output:
	// 1000 admitted 1 until 2000
	// 1400 admitted 2 until 2000
	// 1999 denied 2 until 2000
	// 2000 admitted 1 until 3000
}

func ExampleCell_Refund() {
	var cell atomicring.Cell
	a := cell.Admit(1000, 1000, 1, 1)
	fmt.Println(cell.Refund(a.Deadline, 1), cell.Peek(1500, 1, 1).Verdict)
	// Output: true admitted
}
