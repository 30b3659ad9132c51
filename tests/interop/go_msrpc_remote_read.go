// A reader by MS-MQRR made of go-msrpc, whose stubs are generated from the published IDL:
//
//	client HOST USER PASSWORD ntlm|spnego ndr|ndr64 QUEUE XACTUOW TOKEN
//
// It finds the port through the endpoint mapper, calls all fifteen methods at privacy, and prints what it saw as JSON; the last two
// arguments are hexadecimal. go-msrpc itself is no part of Lanner.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/oiweiwei/go-msrpc/dcerpc"
	"github.com/oiweiwei/go-msrpc/msrpc/dtyp"
	"github.com/oiweiwei/go-msrpc/msrpc/epm/epm/v3"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/msrpc/mqrr/remoteread/v1"
	"github.com/oiweiwei/go-msrpc/ssp"
	"github.com/oiweiwei/go-msrpc/ssp/credential"
	"github.com/oiweiwei/go-msrpc/ssp/gssapi"
)

const (
	peek      = 0x80000000
	lookup    = 0x40000010
	unlimited = 0xFFFFFFFF
)

var seen = map[string]any{}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

// told notes the status of a call: go-msrpc has an error for a failure, beside the response.
func told(name string, status int32) { seen[name] = uint32(status) }

func direct(name string) *mqmq.QueueFormat {
	return &mqmq.QueueFormat{
		QueueFormatType: 3,
		QueueFormat:     &mqmq.QueueFormat_QueueFormat{Value: &mqmq.QueueFormat_DirectID{DirectID: name}},
	}
}

func subqueue(name string) *mqmq.QueueFormat {
	return &mqmq.QueueFormat{
		QueueFormatType: 8,
		QueueFormat:     &mqmq.QueueFormat_QueueFormat{Value: &mqmq.QueueFormat_DirectSubqueueID{DirectSubqueueID: name}},
	}
}

func packet(sections []*remoteread.SectionBuffer) string {
	octets := []byte{}
	for _, one := range sections {
		octets = append(octets, one.SectionBuffer...)
	}
	return hex.EncodeToString(octets)
}

func main() {
	host, user, password, mechanism, syntax, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], `OS:.\private$\`+os.Args[6]
	uow, err := hex.DecodeString(os.Args[7])
	check("XACTUOW", err)
	token, err := hex.DecodeString(os.Args[8])
	check("token", err)
	gssapi.AddCredential(credential.NewFromPassword(user, password, credential.Domain("MQ")))
	gssapi.AddMechanism(ssp.SPNEGO)
	gssapi.AddMechanism(ssp.NTLM)
	ctx, cancel := context.WithTimeout(gssapi.NewSecurityContext(context.Background()), 60*time.Second)
	defer cancel()
	conn, err := dcerpc.Dial(ctx, host, epm.EndpointMapper(ctx, host, dcerpc.WithInsecure()), dcerpc.WithTimeout(20*time.Second))
	check("dial", err)
	kinds := map[string]dcerpc.AuthType{"ntlm": dcerpc.AuthTypeWinNT, "spnego": dcerpc.AuthTypeGSSNegotiate}
	options := []dcerpc.Option{
		dcerpc.WithSecurityLevel(dcerpc.AuthLevelPktPrivacy), dcerpc.WithTargetName("host/" + host), dcerpc.WithSecurtyProvider(kinds[mechanism]),
	}
	if syntax == "ndr64" {
		options = append(options, dcerpc.WithNDR64())
	} else {
		options = append(options, dcerpc.WithNDR20())
	}
	cli, err := remoteread.NewRemoteReadClient(ctx, conn, options...)
	check("bind", err)

	port, err := cli.GetServerPort(ctx, &remoteread.GetServerPortRequest{})
	if port == nil {
		check("port", err)
	}
	seen["port"] = uint32(port.Return)
	client := &dtyp.GUID{Data1: 1, Data4: make([]byte, 8)}
	opened, err := cli.OpenQueue(ctx, &remoteread.OpenQueueRequest{
		QueueFormat: direct(name), Access: 1, ClientID: client, NonRoutingServer: 1, Major: 6, Minor: 1, BuildNumber: 7601, Workgroup: 1,
	})
	check("open", err)
	handle := (*remoteread.QueueNoSerialize)(opened.Context)

	cursor, err := cli.CreateCursor(ctx, &remoteread.CreateCursorRequest{Context: handle})
	check("create cursor", err)
	start := func(what string, action uint32, cursor uint32, request uint32) *remoteread.StartReceiveResponse {
		got, err := cli.StartReceive(ctx, &remoteread.StartReceiveRequest{
			Context: handle, Action: action, Cursor: cursor, RequestID: request, MaxBodySize: unlimited, MaxCompoundMessageSize: unlimited,
		})
		if got == nil {
			check(what, err)
		}
		told(what, got.Return)
		seen[what+" packet"] = packet(got.PacketSections)
		return got
	}
	start("peek", peek, cursor.Cursor, 1)
	closed, err := cli.CloseCursor(ctx, &remoteread.CloseCursorRequest{Context: handle, Cursor: cursor.Cursor})
	check("close cursor", err)
	told("close cursor", closed.Return)
	start("receive", 0, 0, 2)
	ended, err := cli.EndReceive(ctx, &remoteread.EndReceiveRequest{Context: handle, Ack: 2, RequestID: 2})
	check("end", err)
	told("end", ended.Return)

	there, err := cli.OpenQueueForMove(ctx, &remoteread.OpenQueueForMoveRequest{
		QueueFormat: subqueue(name + ";moved"), Access: 4, ClientID: client, NonRoutingServer: 1, Major: 6, Minor: 1, BuildNumber: 7601, Workgroup: 1,
	})
	check("open for move", err)
	next := start("next", peek, 0, 3)
	// Every transactional message is in the lane of priority 0.
	moved, err := cli.MoveMessage(ctx, &remoteread.MoveMessageRequest{
		ContextFrom: handle, ContextTo: there.MoveContext, LookupID: 7<<56 | next.SequenceID, TransactionID: &mqmq.TransactionUOW{Data: make([]byte, 16)},
	})
	check("move", err)
	told("move", moved.Return)

	transaction := &mqmq.TransactionUOW{Data: uow}
	enlisted, err := cli.EnlistRemoteTransaction(ctx, &remoteread.EnlistRemoteTransactionRequest{
		TransactionID: transaction, PropagationTokenLength: uint32(len(token)), PropagationToken: token, QueueFormat: direct(name),
	})
	check("enlist", err)
	told("enlist", enlisted.Return)
	for number, what := range []string{"accepted", "rejected"} {
		request := uint32(10 + number)
		got, err := cli.StartTransactionalReceive(ctx, &remoteread.StartTransactionalReceiveRequest{
			Context: handle, RequestID: request, MaxBodySize: unlimited, MaxCompoundMessageSize: unlimited, TransactionID: transaction,
		})
		if got == nil {
			check(what, err)
		}
		told(what, got.Return)
		seen[what+" packet"] = packet(got.PacketSections)
		ended, err := cli.EndTransactionalReceive(ctx, &remoteread.EndTransactionalReceiveRequest{Context: handle, Ack: 2, RequestID: request})
		check("end "+what, err)
		told("end "+what, ended.Return)
		if what == "rejected" {
			class, err := cli.SetUserAcknowledgementClass(ctx, &remoteread.SetUserAcknowledgementClassRequest{
				Context: handle, LookupID: 7<<56 | got.SequenceID, Class: 0xC004,
			})
			check("reject", err)
			told("reject", class.Return)
		}
	}
	cancelled, err := cli.CancelReceive(ctx, &remoteread.CancelReceiveRequest{Context: handle, RequestID: 99})
	if cancelled == nil {
		check("cancel", err)
	}
	told("cancel", cancelled.Return)
	purged, err := cli.PurgeQueue(ctx, &remoteread.PurgeQueueRequest{Context: handle})
	check("purge", err)
	told("purge", purged.Return)
	start("empty", 0, 0, 4)
	for _, one := range []*remoteread.QueueSerialize{opened.Context, there.Context} {
		closed, err := cli.CloseQueue(ctx, &remoteread.CloseQueueRequest{Context: one})
		check("close", err)
		told("close", closed.Return)
	}
	check("report", json.NewEncoder(os.Stdout).Encode(seen))
}
