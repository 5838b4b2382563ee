// The least that does the job on Go's net/http: JSON body, SHA-256, a map behind a lock for readers, JSON answer.
// `net-http PORT KEYS_FILE`
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
)

type entry struct {
	Valid   bool     `json:"valid"`
	Code    string   `json:"code"`
	KeyID   string   `json:"keyId"`
	APIID   string   `json:"apiId"`
	Enabled bool     `json:"enabled"`
	Meta    struct{} `json:"meta"`
}

func main() {
	entries := map[[sha256.Size]byte]entry{}
	var lock sync.RWMutex
	file, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(file)
	for i := 0; lines.Scan(); i++ {
		digest := sha256.Sum256(lines.Bytes())
		entries[digest] = entry{Valid: true, Code: "VALID", KeyID: fmt.Sprintf("key_%d", i), APIID: "bench", Enabled: true}
	}
	http.HandleFunc("POST /v1/keys.verifyKey", func(response http.ResponseWriter, request *http.Request) {
		var asked struct {
			Key string `json:"key"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(response, request.Body, 65536)).Decode(&asked); err != nil {
			http.Error(response, "body: must be JSON", http.StatusBadRequest)
			return
		}
		digest := sha256.Sum256([]byte(asked.Key))
		lock.RLock()
		found, known := entries[digest]
		lock.RUnlock()
		var body []byte
		if known {
			body, _ = json.Marshal(found)
		} else {
			body = []byte(`{"valid":false,"code":"NOT_FOUND"}`)
		}
		response.Header().Set("Content-Type", "application/json")
		response.Write(body)
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
