// Takes GELF by TLS as Graylog does: Go's TLS, Graylog's own decoder. Prints its port, then a
// message a line. Usage: gelf-tls CERTIFICATE KEY
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/Graylog2/go-gelf/gelf"
)

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	settings := tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &settings)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		serve(bufio.NewReader(connection))
	}
}

func serve(reader *bufio.Reader) {
	for {
		raw, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var message gelf.Message
		if err := json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &message); err != nil {
			log.Fatal(err)
		}
		var out bytes.Buffer
		if err := message.MarshalJSONBuf(&out); err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.String())
	}
}
