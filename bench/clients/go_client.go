// Asks a verifier again and again over one connection: go_client <verifyKey|authz> <base> <key> <count>
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	endpoint, base, key := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	for i := 0; err == nil && i < count; i++ {
		err = ask(endpoint, base, key)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(endpoint, base, key string) error {
	request, err := http.NewRequest("POST", base+"/v1/keys.verifyKey", strings.NewReader(`{"key":"`+key+`"}`))
	if endpoint == "authz" {
		request, err = http.NewRequest("GET", base+"/authz/forward-auth", nil)
	}
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if endpoint == "authz" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != 200 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}
