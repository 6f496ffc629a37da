//! Records of sampled requests, and their limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor::{Data, DataType, Error};
use trace::limits::{
    TRACE_CALLS_MAX, TRACE_RECORD_BYTES_MAX, TRACE_TENSOR_BYTES_MAX, TRACE_TEXT_BYTES_MAX, TRACES_OPEN_BYTES_MAX,
    TRACES_WAITING_MAX,
};
use trace::{Activity, Context, Record, TensorSide, Trace, TraceMode, TraceSetting, Tracer};

fn setting(number: u32) -> TraceSetting {
    TraceSetting { number, mode: TraceMode::Triton, timestamps: true, tensors: true, rate: 1, count: -1 }
}

fn begin(tracer: &Tracer, model: &str) -> Option<Trace> {
    tracer.watch(model).begin(|| None)
}

fn only(tracer: &Tracer) -> Record {
    let mut taken = tracer.take(10);
    assert_eq!(taken.records.len(), 1);
    taken.records.remove(0)
}

fn names(record: &Record) -> Vec<String> {
    record.calls.iter().flat_map(|c| &c.activities).map(|s| s.activity.name().into_owned()).collect()
}

#[test]
fn o40_a_record_is_complete_when_the_last_handle_is_gone() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(7))).expect("few");
    let trace = begin(&tracer, "m").expect("sampled");
    trace.front(Activity::HttpRecvStart, 1);
    trace.accepted("m", 3, "r", 2);
    let engine = trace.clone();
    engine.computed([3, 4, 5, 6]);
    engine.ended(7, Some(&Error::internal("broken")));
    drop(engine);
    assert_eq!(tracer.take(10).records.len(), 0, "the front end still has a handle");
    trace.front(Activity::HttpSendEnd, 9);
    drop(trace);
    let record = only(&tracer);
    assert_eq!((record.setting, record.id, record.activities.len(), record.calls.len()), (7, 1, 2, 1));
    let call = &record.calls[0];
    assert_eq!((call.id, call.parent, &*call.model, call.version, &*call.request_id), (1, 0, "m", 3, "r"));
    assert_eq!(call.error.as_ref().map(|(_, text)| &**text), Some("broken"));
    let all = "REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END";
    assert_eq!(names(&record).join(" "), all);
}

#[test]
fn o40_a_rejected_request_makes_no_record_unless_it_is_kept() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    begin(&tracer, "m").expect("sampled").front(Activity::HttpRecvStart, 1);
    assert_eq!(tracer.take(10).records.len(), 0);
    let no_json = begin(&tracer, "m").expect("sampled");
    no_json.front(Activity::HttpRecvStart, 1);
    no_json.keep();
    drop(no_json);
    let record = only(&tracer);
    assert_eq!((record.id, record.calls.len(), record.activities.len()), (2, 0, 1));
}

#[test]
fn o41_calls_for_a_request_are_part_of_its_record_with_their_parents() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let top = begin(&tracer, "e").expect("sampled");
    top.accepted("e", 1, "", 1);
    let (a, rejected) = (top.child().expect("room"), top.child().expect("room"));
    a.accepted("a", 1, "", 2);
    let inner = a.child().expect("room");
    inner.accepted("b", 1, "", 3);
    drop((a, inner, rejected));
    assert_eq!(tracer.take(10).records.len(), 0, "the client's call is open");
    let mut others = 0;
    while let Some(child) = top.child() {
        child.accepted("n", 1, "", 4);
        others += 1;
    }
    drop(top);
    let record = only(&tracer);
    let parents: Vec<_> = record.calls.iter().take(3).map(|c| (&*c.model, c.id, c.parent)).collect();
    assert_eq!(parents, [("e", 1, 0), ("a", 2, 1), ("b", 4, 2)]);
    assert_eq!((others + 4, record.calls.len()), (TRACE_CALLS_MAX, others + 3));
}

#[test]
fn o42_tensors_of_every_datatype_are_text_and_long_ones_are_cut() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let text = |datatype: DataType, bytes: Vec<u8>| {
        let trace = begin(&tracer, "m").expect("sampled");
        trace.accepted("m", 1, "", 1);
        trace.tensor(TensorSide::QueueInput, "X", datatype, &[2, 3], &Data::Bytes(bytes.into()));
        drop(trace);
        let record = only(&tracer);
        let tensor = &record.calls[0].tensors[0];
        assert_eq!((&*tensor.name, &tensor.shape[..], tensor.datatype), ("X", &[2, 3][..], datatype));
        tensor.text()
    };
    let floats = [0.5f32, 2.0, -0.0, 1e30, 1.5e-7, 0.1, f32::NAN, f32::INFINITY];
    let half: Vec<u8> = [0x3800u16, 0xc000, 0x0001, 0x7bff, 0x7c00].iter().flat_map(|h| h.to_le_bytes()).collect();
    let strings = b"\x01\0\0\0a\x06\0\0\0\"\\\n\x01\xff;\0\0\0\0".to_vec();
    for (datatype, bytes, expected) in [
        (DataType::Bool, vec![1, 0], "1,0"),
        (DataType::Uint8, vec![0, 255], "0,255"),
        (DataType::Int8, vec![0, 255], "0,-1"),
        (DataType::Uint16, vec![255, 255], "65535"),
        (DataType::Int16, vec![254, 255], "-2"),
        (DataType::Uint32, u32::MAX.to_le_bytes().to_vec(), "4294967295"),
        (DataType::Int32, i32::MIN.to_le_bytes().to_vec(), "-2147483648"),
        (DataType::Uint64, u64::MAX.to_le_bytes().to_vec(), "18446744073709551615"),
        (DataType::Int64, 9_007_199_254_740_993i64.to_le_bytes().to_vec(), "9007199254740993"),
        (DataType::Fp32, floats.iter().flat_map(|f| f.to_le_bytes()).collect(), "0.5,2,-0,1e30,1.5e-7,0.1,NaN,inf"),
        (DataType::Fp64, 0.1f64.to_le_bytes().to_vec(), "0.1"),
        (DataType::Fp16, half, "0.5,-2,5.9604645e-8,65504,inf"),
        (DataType::Bf16, vec![0x80, 0x3f, 0x40, 0xc0], "1,-3"),
        (DataType::Bytes, strings, "\"a\",\"\\\"\\\\\\n\\u0001\u{fffd};\",\"\""),
        (DataType::Int32, Vec::new(), ""),
    ] {
        assert_eq!(text(datatype, bytes), expected, "{datatype:?}");
    }
    let long = text(DataType::Uint8, vec![7; TRACE_TENSOR_BYTES_MAX + 1]);
    assert_eq!((long.len(), long.ends_with(",7,...")), (2 * TRACE_TENSOR_BYTES_MAX + 3, true));
    let mut one_string = u32::try_from(TRACE_TENSOR_BYTES_MAX).expect("small").to_le_bytes().to_vec();
    one_string.resize(TRACE_TENSOR_BYTES_MAX + 4, b'x');
    assert_eq!(text(DataType::Bytes, one_string), "...");
}

#[test]
fn o43_the_queue_is_bounded_and_lost_records_are_counted() {
    let tracer = Tracer::default();
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    tracer.wake_with(move || _ = count.fetch_add(1, Ordering::Relaxed));
    tracer.set("", Some(setting(1))).expect("few");
    let leave = |n: usize| (0..n).for_each(|_| begin(&tracer, "m").expect("sampled").accepted("m", 1, "", 1));
    leave(3);
    assert_eq!(woken.load(Ordering::Relaxed), 1, "woken once until it is empty");
    let taken = tracer.take(2);
    assert_eq!((taken.records.len(), taken.is_all), (2, false));
    assert!(tracer.take(2).is_all);
    leave(TRACES_WAITING_MAX + 5);
    assert_eq!((tracer.waiting().0, tracer.lost()), (TRACES_WAITING_MAX, 5));
    assert_eq!(woken.load(Ordering::Relaxed), 2, "woken once more for any number of records");
    while !tracer.take(1000).is_all {}
    assert_eq!(tracer.waiting(), (0, 0));
}

#[test]
fn o43_tensors_and_ids_of_one_request_are_bounded() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let trace = begin(&tracer, "m").expect("sampled");
    trace.accepted("m", 1, &"ü".repeat(TRACE_TEXT_BYTES_MAX), 1);
    let data = Data::Bytes(vec![0; 2 * TRACE_TENSOR_BYTES_MAX].into());
    for _ in 0..40 {
        trace.tensor(TensorSide::QueueInput, "X", DataType::Uint8, &[1], &data);
    }
    drop(trace);
    let record = only(&tracer);
    let room = TRACE_RECORD_BYTES_MAX + 64 * 1024;
    assert!(record.bytes() < room, "{} bytes", record.bytes());
    assert_eq!(record.calls[0].request_id.len(), TRACE_TEXT_BYTES_MAX);
    assert_eq!(record.calls[0].tensors.len(), 40);
}

#[test]
fn o43_tensors_of_all_requests_in_flight_are_bounded_together() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let data = Data::Bytes(vec![0; TRACE_TENSOR_BYTES_MAX].into());
    let open = |_| {
        let trace = begin(&tracer, "m").expect("sampled");
        trace.accepted("m", 1, "", 1);
        for _ in 0..TRACE_RECORD_BYTES_MAX / TRACE_TENSOR_BYTES_MAX {
            trace.tensor(TensorSide::QueueInput, "X", DataType::Uint8, &[1], &data);
        }
        trace
    };
    let many: Vec<_> = (0..2 * TRACES_OPEN_BYTES_MAX / TRACE_RECORD_BYTES_MAX).map(open).collect();
    assert_eq!(tracer.open_bytes(), TRACES_OPEN_BYTES_MAX);
    let length_of_first = |trace: Trace| {
        drop(trace);
        only(&tracer).calls[0].tensors[0].text().len()
    };
    let lengths: Vec<_> = many.into_iter().map(length_of_first).collect();
    assert_eq!(lengths.first(), Some(&(2 * TRACE_TENSOR_BYTES_MAX - 1)));
    assert_eq!(lengths.last(), Some(&"...".len()), "without contents");
    assert_eq!(tracer.open_bytes(), 0);
    drop(open(0));
    assert!(only(&tracer).bytes() > TRACE_RECORD_BYTES_MAX - TRACE_TENSOR_BYTES_MAX, "there is room again");
}

#[test]
fn o39_a_replaced_setting_ends_with_its_last_record() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let in_flight = begin(&tracer, "m").expect("sampled");
    in_flight.accepted("m", 1, "", 1);
    tracer.set("", Some(TraceSetting { count: 1, ..setting(2) })).expect("few");
    assert_eq!(tracer.take(10).ended, Vec::<u32>::new());
    assert_eq!(tracer.left("m"), 1);
    begin(&tracer, "m").expect("sampled by the new one").accepted("m", 1, "", 1);
    assert!(begin(&tracer, "m").is_none() && tracer.left("") == 0, "its count is used up");
    drop(in_flight);
    let taken = tracer.take(10);
    assert_eq!(taken.records.iter().map(|r| r.setting).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(taken.ended, [1]);
    tracer.close();
    assert_eq!(tracer.take(10).ended, [2]);
    assert!(begin(&tracer, "m").is_none());
}

#[test]
fn o39_changing_settings_lose_no_record_and_each_ends_once_behind_its_last() {
    let tracer = Tracer::default();
    let (mut number, mut taken, mut ended) = (1, 0, Vec::new());
    tracer.set("", Some(setting(number))).expect("few");
    let mut take = |ended: &mut Vec<u32>| {
        let found = tracer.take(usize::MAX);
        assert!(found.records.iter().all(|record| !ended.contains(&record.setting)), "a record behind the end");
        taken += found.records.len() as u64;
        ended.extend(found.ended);
        found.is_all
    };
    let watch = tracer.watch("m");
    let sampled = std::thread::scope(|scope| {
        let work = || {
            let traces = (0..10_000).filter_map(|_| watch.begin(|| None));
            traces.inspect(|trace| trace.accepted("m", 1, "", 1)).count() as u64
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            // Sometimes nothing is sampled.
            number += 1;
            tracer
                .set("", Some(TraceSetting { timestamps: number % 7 > 0, tensors: false, ..setting(number) }))
                .expect("few");
            take(&mut ended);
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>()
    });
    tracer.close();
    while !take(&mut ended) {}
    assert_eq!((taken + tracer.lost(), tracer.open_bytes()), (sampled, 0));
    ended.sort_unstable();
    assert_eq!(ended, (1..=number).collect::<Vec<_>>());
}

#[test]
fn o39_a_model_has_its_own_setting_or_the_global_one() {
    let tracer = Tracer::default();
    let (watched, other) = (tracer.watch("own"), tracer.watch("other"));
    assert!(!watched.is_on() && begin(&tracer, "own").is_none());
    tracer.set("own", Some(TraceSetting { count: 5, ..setting(1) })).expect("few");
    assert!(watched.is_on() && !other.is_on());
    assert_eq!((tracer.left("own"), tracer.left("other")), (5, -1));
    tracer.set("", Some(setting(2))).expect("few");
    tracer.set("own", Some(TraceSetting { timestamps: false, tensors: false, ..setting(3) })).expect("few");
    assert!(!watched.is_on() && other.is_on(), "off for this model alone");
    tracer.set("own", None).expect("few");
    assert!(watched.is_on());
    assert!(tracer.watch("loaded later").is_on());
}

fn with_spans(number: u32) -> TraceSetting {
    TraceSetting { mode: TraceMode::OpenTelemetry, tensors: false, ..setting(number) }
}

#[test]
fn o47_a_model_receives_the_context_of_its_call_with_the_ids_of_the_record() {
    let tracer = Tracer::default();
    tracer.set("", Some(with_spans(1))).expect("few");
    let trace = begin(&tracer, "m").expect("sampled");
    trace.accepted("m", 1, "", 1);
    let context = trace.context().expect("mode opentelemetry");
    assert_eq!(trace.context().as_ref(), Some(&context), "the same each time");
    let child = trace.child().expect("few");
    child.accepted("n", 1, "", 2);
    let child_context = child.context().expect("mode opentelemetry");
    drop((trace, child));
    let record = only(&tracer);
    let expected = |at: usize| {
        let span = &record.calls[at].span_id;
        format!(r#"{{"traceparent":"00-{}-{span}-01"}}"#, record.trace_id)
    };
    assert_eq!((context, child_context), (expected(0), expected(1)));
    assert_ne!(record.calls[0].span_id, record.calls[1].span_id);
    assert_eq!((record.trace_id.len(), record.calls[0].span_id.len()), (32, 16));
}

#[test]
fn o47_the_context_continues_that_of_the_caller() {
    let tracer = Tracer::default();
    tracer.set("", Some(with_spans(1))).expect("few");
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    // A quotation mark and a backslash must not end the text early.
    let state: &[u8] = b"a=1,b=\"\\";
    let trace = tracer.watch("m").begin(|| Context::parse(caller.as_bytes(), std::iter::once(state)));
    let trace = trace.expect("sampled");
    trace.accepted("m", 1, "", 1);
    let context = trace.context().expect("mode opentelemetry");
    drop(trace);
    let record = only(&tracer);
    assert_eq!(record.trace_id, "", "the caller's id applies");
    let span = &record.calls[0].span_id;
    let parent = format!("00-0af7651916cd43dd8448eb211c80319c-{span}-01");
    assert_eq!(context, format!(r#"{{"traceparent":"{parent}","tracestate":"a=1,b=\"\\"}}"#));
}

#[test]
fn o47_files_have_no_context() {
    let tracer = Tracer::default();
    tracer.set("", Some(setting(1))).expect("few");
    let trace = begin(&tracer, "m").expect("sampled");
    trace.accepted("m", 1, "", 1);
    assert_eq!(trace.context(), None);
    drop(trace);
    assert_eq!(only(&tracer).calls[0].span_id, "");
}
