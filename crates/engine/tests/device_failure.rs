//! Devices that fail for good only cost their instances. Failures are permanent, so each test uses its own numbers.

mod support;

use device::failure;
use engine::{Engine, EngineOptions, ModelVersion, ReadinessState, VersionState};
use protocol::pb::inference as pb;
use std::sync::Arc;
use support::*;
use tensor::Code;

fn on_gpus(name: &str, gpus: &[i32]) -> pb::ModelConfig {
    let mut config = of_numbers(name, "scripted");
    let group =
        pb::ModelInstanceGroup { name: name.into(), count: 1, kind: 1, gpus: gpus.to_vec(), ..Default::default() };
    config.instance_group = vec![group];
    config
}

fn engine(exit_on_device_error: bool) -> Arc<Engine> {
    let options = EngineOptions { exit_on_device_error, ..EngineOptions::default() };
    let script = |instance: u32, batch: &mut backend::Batch<'_>, _: &backend::RunControl| {
        for entry in batch.requests.iter_mut() {
            entry.result = Some(Ok(outcome(instance as u8)));
        }
    };
    engine_of(options, vec![("scripted", Arc::new(script))]).expect("good options")
}

/// The instance that a request ran on.
fn ran_on(version: &ModelVersion) -> u8 {
    let answer = call(version, 0).next_answer().response.expect("an answer").expect("a good one");
    answer.outputs[0].data.to_vec().expect("in memory")[0]
}

fn is_ready(engine: &Engine, model: &str) -> bool {
    let known = engine.is_model_ready(model, "").expect("a version");
    let asked = matches!(engine.model_ready(model, "").expect("a version"), ReadinessState::Known(true));
    assert_eq!(known, asked);
    known
}

fn failed(engine: &Engine) -> f64 {
    engine.snapshot().gauges.iter().find(|gauge| gauge.0 == "nereid_devices_failed").expect("it is there").2
}

#[test]
fn m_22_a_failed_device_only_costs_its_instances() {
    let engine = engine(false);
    let both = publish(&engine, &on_gpus("both", &[10, 11])).expect("loads");
    let host = publish(&engine, &of_numbers("host", "scripted")).expect("loads");
    assert!(
        engine.is_ready() && is_ready(&engine, "both") && engine.versions(None).iter().all(|(.., why)| why.is_empty())
    );
    let before = failed(&engine);

    failure::report(10, "an illegal address");
    soon("it is told", || !is_ready(&engine, "both"));
    let why = "GPU 10 failed: an illegal address; it cannot be used until the server is started again";
    let lost = ("both".to_owned(), 1, VersionState::Ready, why.to_owned());
    assert_eq!(engine.versions(Some("both")), [lost]);
    for _ in 0..20 {
        assert_eq!(ran_on(&both), 1, "the instance on the other device serves on");
    }
    assert!(!engine.is_ready() && matches!(engine.readiness(), ReadinessState::Known(false)), "strict readiness");
    assert!(is_ready(&engine, "host") && engine.is_live() && failed(&engine) >= before + 1.0);

    failure::report(11, "an ECC error");
    soon("no instance is left", || try_call(&both, 0, None).is_err());
    let refused = try_call(&both, 0, None).err().expect("refused");
    let why = "GPU 11 failed: an ECC error; it cannot be used until the server is started again";
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, why));
    assert_eq!(ran_on(&host), 0, "models on the host go on untouched");

    let refused = publish(&engine, &on_gpus("late", &[11])).err().expect("it cannot be loaded there");
    assert_eq!(refused.message(), why);
    publish(&engine, &on_gpus("other", &[12])).expect("other devices can be used");
    assert!(is_ready(&engine, "other"));
}

#[test]
fn r_49_with_exit_on_device_error_a_failed_device_ends_liveness() {
    let (ends, stays) = (engine(true), engine(false));
    failure::report(20, "an illegal instruction");
    assert!(!ends.is_live() && !ends.is_ready());
    assert!(stays.is_live() && stays.is_ready(), "no model of it lies there");
}
