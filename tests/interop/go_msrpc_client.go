// A client of message queuing made of go-msrpc, whose stubs are generated from the published IDL:
//
//	client HOST USER PASSWORD call|packet|sign|seal ntlm|spnego|bare ndr|ndr64 mqmr|mqmp|mqqp|mqrr|dcom|epm [QUEUE]
//
// It finds every port through the endpoint mapper, which it asks in the same transfer syntax, and prints what it saw as JSON. go-msrpc itself is no part of Lanner.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/oiweiwei/go-msrpc/dcerpc"
	"github.com/oiweiwei/go-msrpc/midl/uuid"
	"github.com/oiweiwei/go-msrpc/msrpc/dcetypes"
	"github.com/oiweiwei/go-msrpc/msrpc/dcom"
	"github.com/oiweiwei/go-msrpc/msrpc/dcom/iactivation/v0"
	"github.com/oiweiwei/go-msrpc/msrpc/dcom/iobjectexporter/v0"
	"github.com/oiweiwei/go-msrpc/msrpc/dcom/mqac/imsmqqueueinfo4/v0"
	"github.com/oiweiwei/go-msrpc/msrpc/dcom/oaut"
	"github.com/oiweiwei/go-msrpc/msrpc/dtyp"
	"github.com/oiweiwei/go-msrpc/msrpc/epm/epm/v3"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmp/qmcomm/v1"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmr/qmmgmt/v1"
	"github.com/oiweiwei/go-msrpc/msrpc/mqqp/qm2qm/v1"
	"github.com/oiweiwei/go-msrpc/msrpc/mqrr/remoteread/v1"
	"github.com/oiweiwei/go-msrpc/ssp"
	"github.com/oiweiwei/go-msrpc/ssp/credential"
	"github.com/oiweiwei/go-msrpc/ssp/gssapi"
	"github.com/oiweiwei/go-msrpc/ssp/ntlm"
)

const (
	// MSMQQueueInfo, MC-MQAC 1.9.
	queueInfoClass = "d7d6e07c-dccd-11d0-aa4b-0060970debae"
	// The transfer syntax, MS-RPCE 2.2.4.12: the one that towers name.
	ndr20 = "8a885d04-1ceb-11c9-9fe8-08002b104860"
)

var seen = map[string]any{}

type client struct {
	ctx       context.Context
	host      string
	level     dcerpc.AuthLevel
	mechanism dcerpc.AuthType
	isBare    bool
	syntax    dcerpc.Option
	options   []dcerpc.Option
}

// security has what every bind asks for.
func (c *client) security() []dcerpc.Option {
	options := []dcerpc.Option{dcerpc.WithSecurityLevel(c.level), dcerpc.WithTargetName("host/" + c.host)}
	if c.isBare {
		// NTLM's messages, under the authentication type of SPNEGO.
		options = append(options, dcerpc.WithSecurityConfig(ntlm.NewConfig()))
	}
	return append(options, dcerpc.WithSecurtyProvider(c.mechanism))
}

// told notes the outcome of a call: its status, or the error that stands for one.
func told(name string, status int32, err error) bool {
	if err != nil && status == 0 {
		seen[name] = err.Error()
		return false
	}
	seen[name] = uint32(status)
	return status == 0
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

// dial connects to wherever the endpoint mapper says that an interface is; the port is found when the interface is bound.
func (c *client) dial() dcerpc.Conn {
	conn, err := dcerpc.Dial(c.ctx, c.host, epm.EndpointMapper(c.ctx, c.host, dcerpc.WithInsecure(), c.syntax), dcerpc.WithTimeout(20*time.Second))
	check("dial", err)
	return conn
}

func direct(name string) *mqmq.QueueFormat {
	return &mqmq.QueueFormat{
		QueueFormatType: 3,
		QueueFormat:     &mqmq.QueueFormat_QueueFormat{Value: &mqmq.QueueFormat_DirectID{DirectID: name}},
	}
}

func (c *client) management() {
	cli, err := qmmgmt.NewQmmgmtClient(c.ctx, c.dial(), c.options...)
	check("bind", err)
	machine := &qmmgmt.ManagementObject{
		Type:             qmmgmt.ManagementObjectTypeMachine,
		ManagementObject: &qmmgmt.ManagementObject_ManagementObject{Value: &qmmgmt.ManagementObject_Reserved1{}},
	}
	info, err := cli.ManagementGetInfo(c.ctx, &qmmgmt.ManagementGetInfoRequest{
		ObjectFormat:    machine,
		CreatePartition: 1,
		Property:        []uint32{4}, // PROPID_MGMT_MSMQ_CONNECTED
		Var: []*mqmq.PropertyVariant{{
			VT: 1, VarUnion: &mqmq.PropertyVariant_VarUnion{Value: &mqmq.PropertyVariant_VarUnion_0{}},
		}},
	})
	if info == nil {
		told("get info", 0, err)
	} else if told("get info", info.Return, err) {
		seen["connected"] = info.Var[0].VarUnion.GetValue()
	}
	action, err := cli.ManagementAction(c.ctx, &qmmgmt.ManagementActionRequest{ObjectFormat: machine, Action: "TIDY"})
	if action == nil {
		told("action", 0, err)
	} else {
		told("action", action.Return, err)
	}
}

func (c *client) queueClient(path string) {
	cli, err := qmcomm.NewQmcommClient(c.ctx, c.dial(), c.options...)
	check("bind", err)
	opened, err := cli.OpenQueueInternal(c.ctx, &qmcomm.OpenQueueInternalRequest{
		QueueFormat:   direct(`OS:.\private$\` + path),
		DesiredAccess: 1,
		ClientGUID:    &dtyp.GUID{Data1: 1, Data4: make([]byte, 8)},
		ClientName:    "client",
	})
	if opened == nil || !told("open", opened.Return, err) {
		if opened == nil {
			told("open", 0, err)
		}
		return
	}
	named, err := cli.HandleToFormatName(c.ctx, &qmcomm.HandleToFormatNameRequest{
		Queue: opened.Queue, FormatNameRPCBufferLength: 100, FormatName: "", Length: 100,
	})
	if named == nil {
		told("name", 0, err)
	} else if told("name", named.Return, err) {
		seen["format name"] = named.FormatName
	}
	purged, err := cli.PurgeQueue(c.ctx, &qmcomm.PurgeQueueRequest{Queue: opened.Queue})
	if purged != nil {
		told("purge", purged.Return, err)
	} else {
		told("purge", 0, err)
	}
	closed, err := cli.CloseHandle(c.ctx, &qmcomm.CloseHandleRequest{Queue: opened.Queue})
	if closed != nil {
		told("close", closed.Return, err)
	} else {
		told("close", 0, err)
	}
}

func (c *client) remoteRead(path string) {
	// The interface that opens the queue has no NDR64 (MS-MQMP 2.2).
	opener, err := qmcomm.NewQmcommClient(c.ctx, c.dial(), append(c.security(), dcerpc.WithNDR20())...)
	check("bind qmcomm", err)
	first, err := opener.OpenRemoteQueue(c.ctx, &qmcomm.OpenRemoteQueueRequest{
		QueueFormat: direct(`OS:.\private$\` + path), DesiredAccess: 1, ClientGUID: &dtyp.GUID{Data1: 1, Data4: make([]byte, 8)},
	})
	if first == nil {
		told("open remote", 0, err)
		return
	}
	if !told("open remote", first.Return, err) {
		return
	}
	reader, err := qm2qm.NewQm2qmClient(c.ctx, c.dial(), c.options...)
	check("bind qm2qm", err)
	version, err := reader.GetVersion(c.ctx, &qm2qm.GetVersionRequest{})
	check("version", err)
	seen["version"] = []uint32{uint32(version.Major), uint32(version.Minor)}
	second, err := reader.OpenQueue(c.ctx, &qm2qm.OpenQueueRequest{
		ClientGUID: &dtyp.GUID{Data1: 1, Data4: make([]byte, 8)}, Queue: first.Queue, QueueID: first.QueueID, ContextID: first.ContextID,
	})
	check("open", err)
	told("open", second.Return, err)
	read, err := reader.StartReceive(c.ctx, &qm2qm.StartReceiveRequest{
		RemoteReadDesc: &qm2qm.RemoteReadDesc{RemoteQueue: first.Queue, Queue: first.QueueID, RequestID: 1},
	})
	check("receive", err)
	told("receive", read.Return, err)
	seen["packet"] = hex.EncodeToString(read.RemoteReadDesc.Buffer)
	ended, err := reader.EndReceive(c.ctx, &qm2qm.EndReceiveRequest{Context: read.Context, Ack: 2})
	check("end", err)
	told("end", ended.Return, err)
	closed, err := reader.CloseQueue(c.ctx, &qm2qm.CloseQueueRequest{Context: second.Context})
	check("close", err)
	told("close", closed.Return, err)
}

// newRemoteRead reads by MS-MQRR, whose handles need no other interface.
func (c *client) newRemoteRead(path string) {
	cli, err := remoteread.NewRemoteReadClient(c.ctx, c.dial(), c.options...)
	check("bind", err)
	opened, err := cli.OpenQueue(c.ctx, &remoteread.OpenQueueRequest{
		QueueFormat: direct(`OS:.\private$\` + path), Access: 1, ClientID: &dtyp.GUID{Data1: 1, Data4: make([]byte, 8)},
		Major: 6, Minor: 1, Workgroup: 1,
	})
	if err != nil {
		// A method without a status: the refusal is a fault.
		told("open", 0, err)
		return
	}
	queue := (*remoteread.QueueNoSerialize)(opened.Context)
	read, err := cli.StartReceive(c.ctx, &remoteread.StartReceiveRequest{
		Context: queue, RequestID: 1, MaxBodySize: 1 << 20, MaxCompoundMessageSize: 1 << 20,
	})
	check("receive", err)
	told("receive", read.Return, err)
	packet := []byte{}
	for _, section := range read.PacketSections {
		packet = append(packet, section.SectionBuffer...)
	}
	seen["packet"] = hex.EncodeToString(packet)
	ended, err := cli.EndReceive(c.ctx, &remoteread.EndReceiveRequest{Context: queue, Ack: 2, RequestID: 1})
	check("end", err)
	told("end", ended.Return, err)
	closed, err := cli.CloseQueue(c.ctx, &remoteread.CloseQueueRequest{Context: opened.Context})
	check("close", err)
	told("close", closed.Return, err)
}

func (c *client) objects(path string) {
	// Activation has a port that everybody knows; the exporter's is told by it.
	conn, err := dcerpc.Dial(c.ctx, net.JoinHostPort(c.host, "135"))
	check("dial", err)
	exporter, err := iobjectexporter.NewObjectExporterClient(c.ctx, conn, c.options...)
	check("bind IObjectExporter", err)
	alive, err := exporter.ServerAlive2(c.ctx, &iobjectexporter.ServerAlive2Request{})
	if err != nil {
		told("ServerAlive2", 0, err)
		return
	}
	activator, err := iactivation.NewActivationClient(c.ctx, conn, c.options...)
	check("bind IActivation", err)
	made, err := activator.RemoteActivation(c.ctx, &iactivation.RemoteActivationRequest{
		ORPCThis:                   &dcom.ORPCThis{Version: alive.COMVersion},
		ClassID:                    dtyp.GUIDFromUUID(uuid.MustParse(queueInfoClass)),
		IIDs:                       []*dcom.IID{imsmqqueueinfo4.QueueInfo4IID},
		RequestedProtocolSequences: []uint16{7},
	})
	check("RemoteActivation", err)
	if !told("activate", made.HResult, nil) {
		return
	}
	ipid := made.InterfaceData[0].GetStandardObjectReference().Std.IPID
	conn, err = dcerpc.Dial(c.ctx, c.host, made.OXIDBindings.EndpointsByProtocol("ncacn_ip_tcp")...)
	check("dial the exporter", err)
	info, err := imsmqqueueinfo4.NewQueueInfo4Client(c.ctx, conn, append(c.options, dcom.WithIPID(ipid))...)
	check("bind IMSMQQueueInfo4", err)
	this := func() *dcom.ORPCThis { return &dcom.ORPCThis{Version: alive.COMVersion} }
	set, err := info.SetPathName(c.ctx, &imsmqqueueinfo4.SetPathNameRequest{This: this(), PathName: &oaut.String{Data: `.\private$\` + path}})
	check("put PathName", err)
	told("put", set.Return, err)
	got, err := info.GetPathName(c.ctx, &imsmqqueueinfo4.GetPathNameRequest{This: this()})
	check("get PathName", err)
	seen["path name"] = got.PathName.Data
	refreshed, err := info.Refresh(c.ctx, &imsmqqueueinfo4.RefreshRequest{This: this()})
	check("Refresh", err)
	told("refresh", refreshed.Return, err)
	label, err := info.GetLabel(c.ctx, &imsmqqueueinfo4.GetLabelRequest{This: this()})
	check("get Label", err)
	seen["label"] = label.Label.Data
}

// mapper asks for the port of an interface as a client does that knows its tower but for the port. What says the minor version
// of the RPC protocol, the right side of the third floor, may be left out.
func (c *client) mapper() {
	conn, err := dcerpc.Dial(c.ctx, net.JoinHostPort(c.host, "135"))
	check("dial", err)
	cli, err := epm.NewEpmClient(c.ctx, conn, dcerpc.WithInsecure(), c.syntax)
	check("bind", err)
	for name, version := range map[string][]byte{"whole": {0, 0}, "empty third floor": {}} {
		found, err := cli.Map(c.ctx, &epm.MapRequest{
			MapTower: dcetypes.FloorsToTower([]*dcetypes.Floor{
				{Protocol: uint8(dcetypes.ProtocolUUID), UUID: qm2qm.Qm2qmSyntaxV1_0.IfUUID, VersionMajor: 1, Data: []byte{0, 0}},
				{Protocol: uint8(dcetypes.ProtocolUUID), UUID: uuid.MustParse(ndr20), VersionMajor: 2, Data: []byte{0, 0}},
				{Protocol: uint8(dcetypes.ProtocolRPC_CO), Data: version},
				{Protocol: uint8(dcetypes.ProtocolTCP), Data: []byte{0, 0}},
				{Protocol: uint8(dcetypes.ProtocolIP), Data: []byte{0, 0, 0, 0}},
			}),
			MaxTowers: 1,
		})
		check("map", err)
		if told(name, int32(found.Status), nil) {
			seen[name] = found.Towers[0].Floors()[3].Port()
		}
	}
}

func main() {
	host, user, password, level, mechanism, syntax, what := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7]
	path := ""
	if len(os.Args) > 8 {
		path = os.Args[8]
	}
	gssapi.AddCredential(credential.NewFromPassword(user, password, credential.Domain("MQ")))
	gssapi.AddMechanism(ssp.SPNEGO)
	gssapi.AddMechanism(ssp.NTLM)
	ctx, cancel := context.WithTimeout(gssapi.NewSecurityContext(context.Background()), 30*time.Second)
	defer cancel()
	levels := map[string]dcerpc.AuthLevel{
		"call": dcerpc.AuthLevelCall, "packet": dcerpc.AuthLevelPkt,
		"sign": dcerpc.AuthLevelPktIntegrity, "seal": dcerpc.AuthLevelPktPrivacy,
	}
	mechanisms := map[string]dcerpc.AuthType{"ntlm": dcerpc.AuthTypeWinNT, "spnego": dcerpc.AuthTypeGSSNegotiate, "bare": dcerpc.AuthTypeGSSNegotiate}
	c := &client{ctx: ctx, host: host, level: levels[level], mechanism: mechanisms[mechanism], isBare: mechanism == "bare"}
	c.syntax = dcerpc.WithNDR20()
	if syntax == "ndr64" {
		c.syntax = dcerpc.WithNDR64()
	}
	c.options = append(c.security(), c.syntax)
	switch what {
	case "mqmr":
		c.management()
	case "mqmp":
		c.queueClient(path)
	case "mqqp":
		c.remoteRead(path)
	case "mqrr":
		c.newRemoteRead(path)
	case "dcom":
		c.objects(path)
	case "epm":
		c.mapper()
	}
	check("report", json.NewEncoder(os.Stdout).Encode(seen))
}
