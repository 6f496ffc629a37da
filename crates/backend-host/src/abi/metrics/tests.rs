//! Metrics of a library, with a server that is a test.

use super::*;
use crate::abi::exports::library::{failed, nothing, pass, to};
use crate::abi::parameter::{TRITONSERVER_ParameterDelete, TRITONSERVER_ParameterNew};
use crate::json;
use crate::testing::{FakeServer, connection};
use frames::{FromRunner, MetricChange};
use serde_json::{Map, Value};
use std::ffi::CStr;
use std::ptr::null_mut;

fn family(kind: u32, name: &CStr) -> Result<Passed<MetricFamily>> {
    let mut made = null_mut();
    let error = TRITONSERVER_MetricFamilyNew(to(&mut made), kind, pass(name.as_ptr()), pass(c"text".as_ptr()));
    failed(error).map_or(Ok(pass(made)), Err)
}

/// A metric of a family with at most one label.
fn metric(family: Passed<MetricFamily>, label: Option<Passed<Parameter>>) -> Result<Passed<Metric>> {
    let (mut made, label) = (null_mut(), label.as_slice());
    let error = TRITONSERVER_MetricNew(to(&mut made), family, pass(label.as_ptr()), label.len() as u64);
    failed(error).map_or(Ok(pass(made)), Err)
}

/// Answers all questions: objects get the numbers 7, 8, …, values are 2.5.
fn answer(server: &FakeServer, first: u64, count: u64) -> Vec<String> {
    (first..first + count)
        .map(|number| {
            let question = server.question();
            server.result(&question, &format!(r#""family":{number},"metric":{number},"value":2.5"#));
            let mut members: Map<String, Value> = json::read(&question).expect("JSON");
            members.remove("id");
            json::text(&members)
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
        let family = family(0, c"f").expect("family");
        let label = pass(TRITONSERVER_ParameterNew(pass(c"who".as_ptr()), 0, c"a\"b".as_ptr().cast()));
        let (metric, mut value) = (metric(family, Some(label)).expect("metric"), 0.0);
        TRITONSERVER_ParameterDelete(label);
        assert_eq!(failed(TRITONSERVER_MetricIncrement(metric, 2.5)), None);
        assert_eq!(failed(TRITONSERVER_MetricValue(metric, to(&mut value))), None);
        assert_eq!(value, 2.5);
        let early = failed(TRITONSERVER_MetricFamilyDelete(family)).expect("an error");
        assert!(early.message().starts_with("Must call MetricDelete"), "{early:?}");
        assert_eq!(failed(TRITONSERVER_MetricDelete(metric)), None);
        assert_eq!(failed(TRITONSERVER_MetricFamilyDelete(family)), None);
    });
    let change = MetricChange { metric: 8, value: 2.5, operation: MetricOperation::Increment };
    assert_eq!(
        seen.join().expect("server"),
        [
            r#"{"description":"text","kind":"counter","name":"f","operation":"family_new"}"#,
            r#"{"family":7,"labels":{"who":"a\"b"},"operation":"metric_new"}"#,
            &format!("{change:?}"),
            r#"{"metric":8,"operation":"metric_value"}"#,
            r#"{"metric":8,"operation":"metric_delete","series":true}"#,
            r#"{"family":7,"operation":"family_delete"}"#,
        ]
    );
}

#[test]
fn wrong_uses_have_the_texts_of_triton_and_ask_nothing() {
    let error = family(9, c"f").err();
    assert_eq!(error, Some(Error::invalid("Unsupported kind passed to MetricFamily constructor.")));
    let (link, server) = connection();
    let answers = std::thread::spawn(move || answer(&server, 1, 3));
    link.run(|| {
        let text = |error| failed(error).map(|e| e.message().to_owned()).unwrap_or_default();
        let with = |family, args| {
            let mut made = null_mut();
            (TRITONSERVER_MetricNewWithArgs(to(&mut made), family, nothing(), 0, args), pass(made))
        };
        let histogram = family(2, c"h").expect("family");
        let none = metric(histogram, None).err();
        assert_eq!(none, Some(Error::invalid("Bucket boundaries not found in Metric args.")));
        let mut args = null_mut();
        assert!(TRITONSERVER_MetricArgsNew(to(&mut args)).is_null());
        assert_eq!(text(with(histogram, pass(args)).0), "Metric args not set to histogram kind.");
        let gauge = family(1, c"g").expect("family");
        assert_eq!(text(with(gauge, pass(args)).0), "Unexpected args found in gauge Metric constructor.");
        assert!(TRITONSERVER_MetricArgsSetHistogram(pass(args), pass([1.0, 2.5, f64::INFINITY].as_ptr()), 3).is_null());
        let number = 1i64;
        let label = pass(TRITONSERVER_ParameterNew(pass(c"n".as_ptr()), 1, (&raw const number).cast()));
        let typed = metric(gauge, Some(label)).err().expect("an error");
        assert!(typed.message().starts_with("Parameter [n] must have a type of TRITONSERVER_PARAMETER_STRING"));
        let (made, metric) = with(histogram, pass(args));
        assert!(made.is_null());
        let kind = "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support";
        assert_eq!(text(TRITONSERVER_MetricSet(metric, 1.0)), format!("{kind} Set"));
        assert_eq!(text(TRITONSERVER_MetricIncrement(metric, 1.0)), format!("{kind} Increment"));
        assert_eq!(text(TRITONSERVER_MetricValue(metric, nothing())), format!("{kind} Value"));
    });
    let asked = answers.join().expect("server");
    assert_eq!(asked[2], r#"{"buckets":[1.0,2.5,"inf"],"family":1,"labels":{},"operation":"metric_new"}"#);
}

#[test]
fn a_metric_survives_the_connection_that_made_it() {
    let (first, server) = connection();
    let answers = std::thread::spawn(move || {
        answer(&server, 1, 2);
        server
    });
    let metric = first.run(|| {
        let metric = metric(family(1, c"s").expect("family"), None).expect("metric");
        TRITONSERVER_MetricSet(metric, 4.0);
        metric
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
    second.run(|| TRITONSERVER_MetricIncrement(metric, 3.0));
    assert_eq!(seen.join().expect("server")[2..], ["Increment 4", "Increment 3"]);
}

/// The frame without its borrows.
fn own(frame: FromRunner<'_>) -> FromRunner<'static> {
    match frame {
        FromRunner::MetricUpdate(change) => FromRunner::MetricUpdate(change),
        other => panic!("{other:?}"),
    }
}
