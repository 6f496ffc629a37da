//! Metrics of a library, with a server that is a test.

use super::*;
use crate::abi::error::ServerError;
use crate::abi::parameter::{TRITONSERVER_ParameterDelete, TRITONSERVER_ParameterNew};
use crate::testing::{FakeServer, connection};
use frames::{FromRunner, MetricChange};
use std::ptr::null_mut;

fn failed(error: Err) -> Option<Error> {
    // SAFETY: made by the functions above.
    unsafe { ServerError::take(error) }
}

fn family(kind: u32, name: &std::ffi::CStr) -> Result<*const MetricFamily> {
    let mut made = null();
    // SAFETY: our own variable and static texts.
    let error = unsafe { TRITONSERVER_MetricFamilyNew(&raw mut made, kind, name.as_ptr(), c"text".as_ptr()) };
    failed(error).map_or(Ok(made), Err)
}

/// Answers all questions: objects get the numbers 7, 8, …, values are 2.5.
fn answer(server: &FakeServer, first: u64, count: u64) -> Vec<String> {
    (first..first + count)
        .map(|number| {
            let question = server.question();
            server.result(&question, &format!(r#""family":{number},"metric":{number},"value":2.5"#));
            question.split_once(',').map(|(_, rest)| rest.to_owned()).expect("members")
        })
        .collect()
}

#[test]
fn a_metric_is_made_updated_and_deleted_on_the_connection_of_its_family() {
    let (link, server) = connection();
    let seen = std::thread::spawn(move || {
        let mut seen = answer(&server, 7, 2);
        let FromRunner::MetricUpdate(update) = server.side_frame(own) else { panic!("update") };
        seen.push(format!("{update:?}"));
        seen.extend(answer(&server, 9, 3));
        seen
    });
    link.run(|| {
        // SAFETY: objects that live.
        unsafe {
            let family = family(0, c"f").expect("family");
            let label = TRITONSERVER_ParameterNew(c"who".as_ptr(), 0, c"a\"b".as_ptr().cast());
            let (mut metric, mut value) = (null_mut(), 0.0);
            let labels = [label.cast_const()];
            assert_eq!(failed(TRITONSERVER_MetricNew(&raw mut metric, family, labels.as_ptr(), 1)), None);
            TRITONSERVER_ParameterDelete(label);
            assert_eq!(failed(TRITONSERVER_MetricIncrement(metric, 2.5)), None);
            assert_eq!(failed(TRITONSERVER_MetricValue(metric, &raw mut value)), None);
            assert_eq!(value, 2.5);
            let early = failed(TRITONSERVER_MetricFamilyDelete(family)).expect("an error");
            assert!(early.message().starts_with("Must call MetricDelete"), "{early:?}");
            assert_eq!(failed(TRITONSERVER_MetricDelete(metric)), None);
            assert_eq!(failed(TRITONSERVER_MetricFamilyDelete(family)), None);
        }
    });
    let change = MetricChange { metric: 8, value: 2.5, operation: MetricOperation::Increment };
    assert_eq!(
        seen.join().expect("server"),
        [
            r#""operation":"family_new","name":"f","description":"text","kind":"counter"}"#,
            r#""operation":"metric_new","family":7,"labels":{"who":"a\"b"}}"#,
            &format!("{change:?}"),
            r#""operation":"metric_value","metric":8}"#,
            r#""operation":"metric_delete","metric":8,"series":true}"#,
            r#""operation":"family_delete","family":7}"#,
        ]
    );
}

#[test]
fn wrong_uses_have_the_texts_of_triton_and_ask_nothing() {
    let error = family(9, c"f").expect_err("a kind");
    assert_eq!(error, Error::invalid("Unsupported kind passed to MetricFamily constructor."));
    let (link, server) = connection();
    let answers = std::thread::spawn(move || answer(&server, 1, 3));
    link.run(|| {
        // SAFETY: objects that live.
        unsafe {
            let histogram = family(2, c"h").expect("family");
            let (mut metric, mut args) = (null_mut(), null_mut());
            let text = |error| failed(error).map(|e| e.message().to_owned()).unwrap_or_default();
            let none = TRITONSERVER_MetricNew(&raw mut metric, histogram, null(), 0);
            assert_eq!(text(none), "Bucket boundaries not found in Metric args.");
            assert!(TRITONSERVER_MetricArgsNew(&raw mut args).is_null());
            let unset = TRITONSERVER_MetricNewWithArgs(&raw mut metric, histogram, null(), 0, args);
            assert_eq!(text(unset), "Metric args not set to histogram kind.");
            let gauge = family(1, c"g").expect("family");
            let unexpected = TRITONSERVER_MetricNewWithArgs(&raw mut metric, gauge, null(), 0, args);
            assert_eq!(text(unexpected), "Unexpected args found in gauge Metric constructor.");
            assert!(TRITONSERVER_MetricArgsSetHistogram(args, [1.0, 2.5].as_ptr(), 2).is_null());
            let number = 1i64;
            let label = TRITONSERVER_ParameterNew(c"n".as_ptr(), 1, (&raw const number).cast());
            let labels = [label.cast_const()];
            let typed = TRITONSERVER_MetricNew(&raw mut metric, gauge, labels.as_ptr(), 1);
            assert!(text(typed).starts_with("Parameter [n] must have a type of TRITONSERVER_PARAMETER_STRING"));
            assert!(TRITONSERVER_MetricNewWithArgs(&raw mut metric, histogram, null(), 0, args).is_null());
            let kind = "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support";
            assert_eq!(text(TRITONSERVER_MetricSet(metric, 1.0)), format!("{kind} Set"));
            assert_eq!(text(TRITONSERVER_MetricIncrement(metric, 1.0)), format!("{kind} Increment"));
            assert_eq!(text(TRITONSERVER_MetricValue(metric, null_mut())), format!("{kind} Value"));
        }
    });
    let asked = answers.join().expect("server");
    assert_eq!(asked[2], r#""operation":"metric_new","family":1,"labels":{},"buckets":[1.0,2.5]}"#);
}

#[test]
fn a_metric_survives_the_connection_that_made_it() {
    let (first, server) = connection();
    let answers = std::thread::spawn(move || {
        answer(&server, 1, 2);
        server
    });
    // SAFETY: objects that live.
    let metric = first.run(|| unsafe {
        let mut metric = null_mut();
        TRITONSERVER_MetricNew(&raw mut metric, family(1, c"s").expect("family"), null(), 0);
        TRITONSERVER_MetricSet(metric, 4.0);
        metric as usize
    });
    drop(answers.join().expect("server"));
    first.close();
    let (second, server) = connection();
    let seen = std::thread::spawn(move || {
        let mut seen = answer(&server, 1, 2);
        let question = server.question();
        server.result(&question, r#""value":0.0"#);
        for _ in 0..2 {
            let FromRunner::MetricUpdate(update) = server.side_frame(own) else { panic!("update") };
            seen.push(format!("{:?} {}", update.operation, update.value));
        }
        seen
    });
    // SAFETY: a live metric.
    second.run(|| unsafe { TRITONSERVER_MetricIncrement(metric as *const Metric, 3.0) });
    assert_eq!(seen.join().expect("server")[2..], ["Increment 4", "Increment 3"]);
}

/// The frame without its borrows.
fn own(frame: FromRunner<'_>) -> FromRunner<'static> {
    match frame {
        FromRunner::MetricUpdate(change) => FromRunner::MetricUpdate(change),
        other => panic!("{other:?}"),
    }
}
