// Walks a tree with many goroutines and runs a command: threads, small stacks, signals.
package main

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"sync"
)

func main() {
	var names []string
	err := filepath.WalkDir(os.Args[1], func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	lines := make([]string, len(names))
	work := make(chan int)
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range work {
				data, err := os.ReadFile(names[i])
				h := fnv.New64()
				h.Write(data)
				lines[i] = fmt.Sprintf("%q %d %x %v", names[i], len(data), h.Sum64(), err)
			}
		}()
	}
	for i := range names {
		work <- i
	}
	close(work)
	group.Wait()
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	out, err := exec.Command("sh", "-c", "echo from a child; exit 3").CombinedOutput()
	fmt.Printf("%s%v\n", out, err)
}
