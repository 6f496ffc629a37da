//! Tests of the codec with `shm/vectors/frames.json`, which the tests of other languages also read.

use super::tensor::lease_id;
use super::write::{self, Put, RequestHeadOf};
use super::*;
use crate::generated::{
    ANSWER_FLAG_FINAL, Answer, AnswerHead, ExecuteHead, Frame, LogLevel, MetricOperation, Place, Segment,
};
use ::tensor::{Code, DataType, Name};
use protocol::Parameter;
use protocol::json::Value;
use smallvec::smallvec;

fn vectors(of: &str) -> Vec<(String, Vec<u8>)> {
    let text = include_bytes!("../../../shm/vectors/frames.json");
    let all = Value::parse(text).and_then(|v| v.member(of)).expect("the file");
    let one = |v: Value<'_>| {
        let text = |key| v.member(key).and_then(Value::as_string).expect("a text");
        let hex = text("hex");
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex");
        (text("name"), (0..hex.len()).step_by(2).map(byte).collect())
    };
    all.elements().expect("a list").map(one).collect()
}

fn good(name: &str) -> Vec<u8> {
    vectors("good").into_iter().find(|v| v.0 == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn check_read(name: &str, check: impl FnOnce(FromRunner<'_>)) {
    let bytes = good(name);
    let (header, body, rest) = split(&bytes).expect("a head").expect("whole");
    assert!(rest.is_empty());
    for short in 0..bytes.len() {
        assert_eq!(split(&bytes[..short]), Ok(None), "{name}: only {short} bytes");
    }
    check(read(&header, body).unwrap_or_else(|e| panic!("{name}: {e}")));
}

#[test]
fn invalid_frames_are_rejected_b_sec_04_b_sec_05() {
    let invalid = vectors("lies");
    assert!(invalid.len() > 25);
    for (name, bytes) in invalid {
        let read = split(&bytes).map(|whole| whole.map(|(header, body, _)| read(&header, body).map(drop)));
        assert!(matches!(read, Err(_) | Ok(Some(Err(_)))), "{name}: {read:?}");
    }
}

#[test]
fn frames_of_a_runner_are_decoded() {
    check_read("result", |frame| {
        let FromRunner::Result(result) = frame else { panic!("{frame:?}") };
        assert_eq!((result.batch, result.failed, result.releases.iter().collect::<Vec<_>>()), (7, None, vec![64]));
        let [first, second] = &result.answers[..] else { panic!("two answers") };
        assert!(first.is_final && first.kind == Answer::Response && first.parameters == r#"{"a":1}"#);
        let x = [0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0];
        let block = Block { of_requests: false, segment: 1, offset: 4096, bytes: 8192 };
        assert_eq!(block.id(), 1 << 40 | 4096);
        let tensor =
            |name, datatype, shape: &[i64], contents| TensorRef { name, datatype, shape: shape.into(), contents };
        let expected: [TensorRef<'_>; 3] = [
            tensor("X", DataType::Fp32, &[1, 2], Contents::Inline(&x)),
            tensor("S", DataType::Bytes, &[2], Contents::Inline(b"\x02\0\0\0ab\0\0\0\0")),
            tensor("Y", DataType::Int64, &[1024], Contents::Block(block)),
        ];
        assert_eq!(first.outputs[..], expected);
        assert!(second.kind == Answer::None && !second.is_final && second.outputs.is_empty());
    });
    check_read("result_device", |frame| {
        let FromRunner::Result(result) = frame else { panic!("{frame:?}") };
        let releases: Vec<_> = result.releases.iter().collect();
        assert_eq!(
            (releases[..].to_vec(), lease_of(releases[0]), lease_of(1 << 40 | 64)),
            (vec![lease_id(2)], Some(2), None)
        );
        let [ours, theirs] = &result.answers[0].outputs[..] else { panic!("two outputs") };
        let handle: [u8; 64] = std::array::from_fn(|i| i as u8);
        let lent = Lent { by_host: false, lease: 7, device: 1, offset: 256, bytes: 32, handle: &handle };
        assert_eq!(ours.contents, Contents::Device(lent));
        assert_eq!(theirs.contents, Contents::Device(Lent { by_host: true, lease: 3, bytes: 16, ..lent }));
    });
    check_read("result_failed", |frame| {
        assert!(matches!(frame, FromRunner::Result(r) if r.failed == Some("ValueError: é") && r.answers.is_empty()));
    });
    check_read("respond", |frame| {
        let FromRunner::Respond { slot: 3, generation: 9, answer } = frame else { panic!("{frame:?}") };
        assert_eq!(
            (answer.kind, answer.code, answer.error, answer.is_final),
            (Answer::Error, Code::InvalidArg, "no", false)
        );
    });
    check_read("respond_exhausted", |frame| {
        assert!(matches!(frame, FromRunner::Respond { answer, .. } if answer.code == Code::ResourceExhausted));
    });
    check_read("call", |frame| {
        let FromRunner::Call(call) = frame else { panic!("{frame:?}") };
        assert_eq!((call.call, call.version, call.parent, call.model), (1, -1, (3, 9), "other"));
        assert!(call.is_decoupled && !call.is_traced && call.request.inputs.len() == 1 && call.request.head.flags == 2);
        assert_eq!(
            (call.request.id, call.request.correlation, &call.request.outputs),
            ("b", "c", &Some(smallvec!["O"]))
        );
    });
    check_read("call_cancel", |frame| assert_eq!(frame, FromRunner::CallCancel(1)));
    check_read("metric_update", |frame| {
        let operation = MetricOperation::Observe;
        assert_eq!(frame, FromRunner::MetricUpdate(MetricChange { metric: 2, value: 0.5, operation }));
    });
    check_read("log", |frame| {
        assert_eq!(frame, FromRunner::Log(LogRef { level: LogLevel::Warning, file: "m.py", line: 12, text: "hot" }));
    });
    check_read("need_segment", |frame| assert_eq!(frame, FromRunner::NeedSegment(1 << 30)));
    check_read("no_devices", |frame| assert_eq!(frame, FromRunner::NoDevices));
    check_read("release", |_| {});
    check_read("is_ready_result", |frame| {
        assert_eq!(frame, FromRunner::IsReadyResult { question: 11, is_ready: true })
    });
    check_read("pong", |frame| assert_eq!(frame, FromRunner::Pong(12)));
    check_read("ready", |frame| assert!(matches!(frame, FromRunner::Ready(_))));
    check_read("control", |frame| assert!(matches!(frame, FromRunner::Control(_))));
}

#[test]
fn frames_of_the_server_are_encoded_as_in_the_vectors() {
    let mut out = Vec::new();
    let writing = write::begin(&mut out, InstanceId::ONLY, Frame::Execute);
    ExecuteHead { batch: 7, releases: 1, flags: 0 }.write(&mut out);
    out.extend_from_slice(&(1u64 << 40 | 64).to_le_bytes());
    let head = RequestHeadOf {
        slot: 3,
        generation: 9,
        correlation: 42,
        timeout_us: 1000,
        flags: 1,
        id: "a1",
        inputs: 2,
        ..RequestHeadOf::default()
    };
    let parameters: [(Name, Parameter); 4] = [
        ("k".into(), Parameter::String("v".into())),
        ("n".into(), Parameter::Int(1)),
        ("d".into(), Parameter::Double(2.0)),
        ("t".into(), Parameter::Bool(true)),
    ];
    write::request(&mut out, &head, &parameters, Some(["OUT", "É"].into_iter()));
    write::tensor(&mut out, "X", DataType::Fp32, &[1, 2], Put::Inline(&[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0]));
    let block = Block { of_requests: true, segment: 0, offset: 128, bytes: 10000 };
    write::tensor(&mut out, "B", DataType::Uint8, &[10000], Put::Block(block));
    let head = RequestHeadOf { slot: 4, generation: 1, correlation_text: "s1", ..RequestHeadOf::default() };
    write::request(&mut out, &head, &[], None::<std::iter::Empty<&str>>);
    writing.count(&mut out, 2);
    writing.end(&mut out).expect("short");
    assert_eq!(out, good("execute"));

    let mut out = Vec::new();
    let writing = write::begin(&mut out, InstanceId::ONLY, Frame::Execute);
    ExecuteHead { batch: 8, releases: 1, flags: 0 }.write(&mut out);
    out.extend_from_slice(&lease_id(7).to_le_bytes());
    let head = RequestHeadOf { slot: 5, generation: 2, inputs: 1, ..RequestHeadOf::default() };
    write::request(&mut out, &head, &[], None::<std::iter::Empty<&str>>);
    let handle: [u8; 64] = std::array::from_fn(|i| i as u8);
    let lent = Lent { by_host: true, lease: 3, device: 1, offset: 256, bytes: 32, handle: &handle };
    write::tensor(&mut out, "G", DataType::Fp32, &[2, 4], Put::Device(lent));
    writing.count(&mut out, 1);
    writing.end(&mut out).expect("short");
    assert_eq!(out, good("execute_device"));

    let check = |name, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(out, good(name), "{name}");
    };
    check("segment", &|out| {
        write::segment(out, Segment { bytes: 1 << 20, segment: 2, place: Place::Response as u8, refused: 0 });
    });
    check("close_handle", &|out| write::close_handle(out, 1, &handle));
    check("release", &|out| write::release(out, &mut vec![64, 128]));
    check("is_ready", &|out| write::question(out, InstanceId::ONLY, Frame::IsReady, 11));
    check("unload", &|out| write::empty(out, InstanceId::ONLY, Frame::Unload));
    check("load", &|out| write::json(out, InstanceId::ONLY, Frame::Load, r#"{"mode":"run"}"#).expect("short"));
    check("call_response", &|out| {
        let head = AnswerHead {
            kind: Answer::Error as u8,
            flags: ANSWER_FLAG_FINAL,
            code: Code::NotFound as u32,
            ..AnswerHead::default()
        };
        write::call_response(out, InstanceId::ONLY, 5, head, "", "nö").end(out).expect("short");
    });
}

#[test]
fn frames_of_the_server_are_read_as_they_were_written_and_damaged_ones_are_rejected() {
    let mut read_all = 0;
    for name in ["load", "unload", "execute", "call_response", "segment", "release", "is_ready"] {
        let bytes = good(name);
        let (header, body, rest) = split_request(&bytes).expect("a head").expect("whole");
        assert!(rest.is_empty());
        let frame = read_request(&header, body).unwrap_or_else(|e| panic!("{name}: {e}"));
        read_all += usize::from(match name {
            "load" => matches!(frame, ToRunner::Load(text) if text.starts_with('{')),
            "unload" => frame == ToRunner::Unload,
            "execute" => {
                matches!(&frame, ToRunner::Execute(batch) if batch.requests.len() == usize::from(header.count))
            }
            "call_response" => matches!(&frame, ToRunner::CallResponse { call: 5, answer } if answer.error == "nö"),
            "segment" => matches!(frame, ToRunner::Segment(Segment { segment: 2, .. })),
            "release" => matches!(&frame, ToRunner::Release(ids) if ids.iter().eq([64, 128])),
            _ => frame == ToRunner::IsReady(11),
        });
        // A frame that is cut off is refused; a changed one is read or refused.
        for short in 0..body.len() {
            assert!(name == "load" || read_request(&header, &body[..short]).is_err(), "{name} without its end");
        }
        for at in 0..body.len() {
            let mut damaged = body.to_vec();
            damaged[at] ^= 0xff;
            let _ = read_request(&header, &damaged);
        }
    }
    assert_eq!(read_all, 7);
}
