package sharded

import (
	"reflect"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v3"
)

// nodes makes the nodes of a map: a key and its value in one object. The map holds pointers to the values, and finds the
// keys in front of them.
//
//	                 v
//	+----------------+---------+
//	|          bytes |  value  |   K is a string type, and the key has up to maxText bytes: its length is in the hash
//	+----------------+---------+
//	|   key          |  value  |   any other key
//	+----------------+---------+
//
// The bytes end where the value begins.
type nodes[K comparable, V any] struct {
	texts *textTypes // nil if K is no string type
	// lengths is lengthMask, or 0 if K is no string type.
	lengths uint64
}

// textTypes are the types of nodes with bytes, by the number of words that these take: without room and with it.
type textTypes struct {
	plain, roomy [maxText/wordSize + 1]reflect.Type
}

// allTextTypes has them by the type of the value. Types that were made at run time are never freed.
var allTextTypes = xsync.NewMapOf[reflect.Type, *textTypes]()

func textTypesFor(value reflect.Type) *textTypes {
	types, _ := allTextTypes.LoadOrCompute(value, func() *textTypes {
		types := new(textTypes)
		for words := range types.plain {
			fields := []reflect.StructField{
				{Name: "Text", Type: reflect.ArrayOf(words, reflect.TypeFor[atomic.Uint64]())}, // aligned to 8 bytes everywhere
				{Name: "Value", Type: value},
				{Name: "Room", Type: reflect.TypeFor[[room]byte]()},
			}
			types.plain[words] = reflect.StructOf(fields[:2])
			types.roomy[words] = reflect.StructOf(fields)
		}
		return types
	})
	return types
}

// A pair is the node of a key that is no short string.
type pair[K comparable, V any] struct {
	key   K
	value V
}

// A roomyPair is a pair with room.
type roomyPair[K comparable, V any] struct {
	pair[K, V]
	_ [room]byte
}

const (
	wordSize = 8

	// The hash of a string has the length in lengthBits bits from lengthShift on, longText for all that are longer than
	// maxText: above what xsync takes for a bucket, below what is taken for a shard.
	lengthShift = 44
	lengthBits  = 7
	lengthMask  = uint64(longText) << lengthShift
	longText    = 1<<lengthBits - 1
	maxText     = 8 * wordSize

	// room behind a value keeps the next one off its cache line.
	room = 96
)

func newNodes[K comparable, V any]() (n nodes[K, V]) {
	if reflect.TypeFor[K]().Kind() == reflect.String {
		n.texts, n.lengths = textTypesFor(reflect.TypeFor[V]()), lengthMask
	}
	return n
}

// hash returns hash with what the nodes have to know about key in it.
func (n *nodes[K, V]) hash(hash uint64, key K) uint64 {
	if n.texts == nil {
		return hash
	}
	length := len(*asString(&key))
	if length > maxText {
		length = longText
	}
	return hash&^lengthMask | uint64(length)<<lengthShift
}

// make returns the value, all zero, of a new node for key, with room if it is to be roomy.
func (n *nodes[K, V]) make(key K, roomy bool) *V {
	if n.texts != nil {
		text := asString(&key)
		if length := len(*text); length <= maxText {
			types := &n.texts.plain
			if roomy {
				types = &n.texts.roomy
			}
			words := (length + wordSize - 1) / wordSize
			v := unsafe.Add(reflect.New(types[words]).UnsafePointer(), words*wordSize)
			copy(unsafe.Slice((*byte)(unsafe.Add(v, -length)), length), *text)
			return (*V)(v)
		}
		*text = strings.Clone(*text)
	}
	var p *pair[K, V]
	if roomy {
		p = &new(roomyPair[K, V]).pair
	} else {
		p = new(pair[K, V])
	}
	p.key = key
	return &p.value
}

// key returns the key of v, which has that hash. A short string shares its bytes with the node, which nobody writes to.
func (n *nodes[K, V]) key(hash uint64, v *V) K {
	if n.texts != nil && hash&lengthMask != lengthMask {
		text := textOf(hash, unsafe.Pointer(v))
		return *(*K)(unsafe.Pointer(&text))
	}
	return pairOf[K](v).key
}

// has reports whether key is the key of v. Both have that hash.
func (n *nodes[K, V]) has(hash uint64, v *V, key K) bool {
	if n.texts != nil && hash&lengthMask != lengthMask {
		return textOf(hash, unsafe.Pointer(v)) == *asString(&key)
	}
	return pairOf[K](v).key == key
}

// textOf returns the bytes in front of the value v, which has that hash.
func textOf(hash uint64, v unsafe.Pointer) string {
	length := int(hash & lengthMask >> lengthShift)
	return unsafe.String((*byte)(unsafe.Add(v, -length)), length)
}

func pairOf[K comparable, V any](v *V) *pair[K, V] {
	return (*pair[K, V])(unsafe.Add(unsafe.Pointer(v), -unsafe.Offsetof(pair[K, V]{}.value)))
}

// asString returns a key of a string type as a string.
func asString[K comparable](key *K) *string { return (*string)(unsafe.Pointer(key)) }
