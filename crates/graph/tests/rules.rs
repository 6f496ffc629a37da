//! The rules for one request (scheduling.md 6.2), each with an ensemble of the recorded suite.

mod common;
use common::{Models, Player, request, signature};
use graph::{Limits, Plan};
use protocol::{CorrelationId, Parameter, Sequence};
use std::sync::Arc;
use tensor::{Data, Error};

const X: &str = "X:INT32[-1]";
const Y: &str = "Y:INT32[-1]";
const REPEAT: &str = "repeat(IN=IN, DELAY=DELAY, WAIT=WAIT) -> OUT=o, IDX=IDX";
const REPEAT_IN: &str = "IN:INT32[-1] DELAY:UINT32[-1] WAIT:UINT32[1]";

fn plan(inputs: &str, outputs: &str, steps: &[&str]) -> Plan {
    Models::recorded().plan(&signature("e", 0, inputs, outputs), steps).unwrap()
}

fn start(inputs: &str, outputs: &str, steps: &[&str], values: &str) -> Player {
    Player::start(plan(inputs, outputs, steps), request(values), &[])
}

/// An ensemble of `repeat`, which returns `o` and `IDX`, and the steps that use `o`.
fn repeat(outputs: &str, steps: &[&str]) -> Player {
    let steps: Vec<_> = [REPEAT].iter().chain(steps).copied().collect();
    let mut player = start(REPEAT_IN, outputs, &steps, "IN:INT32[1]=i DELAY:UINT32[1]=d WAIT:UINT32[1]=w");
    assert_eq!(player.take_log(), "repeat(IN[1]=i DELAY[1]=d WAIT[1]=w)");
    player
}

#[test]
fn a_step_starts_when_its_tensors_are_there_s_27() {
    let mut p = start(X, Y, &["plus10(INPUT0=t) -> OUTPUT0=Y", "plus1(INPUT0=X) -> OUTPUT0=t"], "X:INT32[2]=x");
    assert_eq!(p.take_log(), "plus1(INPUT0[2]=x)");
    assert_eq!(p.answer("plus1", "OUTPUT0[2]=t"), "plus10(INPUT0[2]=t)");
    assert_eq!(p.answer("plus10", "OUTPUT0[2]=y"), "respond Y[2]=y; finish");
}

#[test]
fn steps_that_are_ready_run_side_by_side_s_27() {
    let fan = ["plus1(INPUT0=X) -> OUTPUT0=a", "plus10(INPUT0=X) -> OUTPUT0=b", "add2(A=a, B=b) -> S=Y"];
    let mut p = start(X, "Y:INT32[-1] a:INT32[-1]", &fan, "X:INT32[1]=x");
    assert_eq!(p.take_log(), "plus1(INPUT0[1]=x); plus10(INPUT0[1]=x)");
    assert_eq!(p.answer("plus10", "OUTPUT0[1]=b"), "");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=a"), "add2(A[1]=a B[1]=b)");
    assert_eq!(p.answer("add2", "S[1]=s"), "respond Y[1]=s a[1]=a; finish");
}

#[test]
fn one_tensor_may_go_into_two_inputs_of_a_step() {
    let mut p = start(X, Y, &["add2(A=X, B=X) -> S=Y"], "X:INT32[1]=x");
    assert_eq!(p.take_log(), "add2(A[1]=x B[1]=x)");
    assert_eq!(p.answer("add2", "S[1]=s"), "respond Y[1]=s; finish");
}

#[test]
fn steps_that_no_requested_output_needs_do_not_run_s_27() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=Y", "slow(INPUT0=X) -> OUTPUT0=s", "plus10(INPUT0=s) -> OUTPUT0=Z"];
    let check = |outputs: &[&str], expected: &str| {
        let plan = plan(X, "Y:INT32[-1] Z:INT32[-1]", &steps);
        let mut p = Player::start(plan, request("X:INT32[1]=x"), outputs);
        let mut log = vec![p.take_log()];
        while let Some((_, step)) = p.runs.first() {
            let model = p.execution.plan().steps()[*step].model.clone();
            log.push(p.answer(&model, &format!("OUTPUT0[1]={model}")));
        }
        log.retain(|l| !l.is_empty());
        assert_eq!(log.join("; "), expected, "{outputs:?}");
    };
    check(&["Y"], "plus1(INPUT0[1]=x); respond Y[1]=plus1; finish");
    check(&["Z"], "slow(INPUT0[1]=x); plus10(INPUT0[1]=slow); respond Z[1]=plus10; finish");
    check(&[], "plus1(INPUT0[1]=x); slow(INPUT0[1]=x); plus10(INPUT0[1]=slow); respond Y[1]=plus1 Z[1]=plus10; finish");
}

#[test]
fn an_output_that_a_step_also_takes_may_be_asked_for_alone_s_27() {
    // Triton returns "unexpected deadlock" here.
    let fan = ["plus1(INPUT0=X) -> OUTPUT0=a", "plus10(INPUT0=X) -> OUTPUT0=b", "add2(A=a, B=b) -> S=Y"];
    let plan = plan(X, "Y:INT32[-1] a:INT32[-1]", &fan);
    let mut p = Player::start(plan, request("X:INT32[1]=x"), &["a"]);
    assert_eq!(p.take_log(), "plus1(INPUT0[1]=x)");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=a"), "respond a[1]=a; finish");
}

#[test]
fn an_output_may_be_an_input() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=Y"];
    let outputs = "Y:INT32[-1] X:INT32[-1]";
    let mut p = start(X, outputs, &steps, "X:INT32[1]=x");
    assert_eq!(p.take_log(), "plus1(INPUT0[1]=x)");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=y"), "respond Y[1]=y X[1]=x; finish");
    let mut p = Player::start(plan(X, outputs, &steps), request("X:INT32[1]=x"), &["X"]);
    assert_eq!(p.take_log(), "respond X[1]=x; finish", "nothing has to run");
}

#[test]
fn a_step_that_writes_an_input_is_read_by_the_answer_only() {
    let mut p = start(X, X, &["plus1(INPUT0=X) -> OUTPUT0=X"], "X:INT32[1]=x");
    assert_eq!(p.take_log(), "plus1(INPUT0[1]=x)");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=y"), "respond X[1]=y; finish");
    // Nothing uses the written tensor, so the step does not run.
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=Y", "plus10(INPUT0=Y) -> OUTPUT0=X"];
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=y"), "respond Y[1]=y; finish");
}

#[test]
fn tensors_go_from_step_to_step_without_a_copy() {
    let mut p = start(X, Y, &["plus1(INPUT0=X) -> OUTPUT0=t", "add2(A=t, B=t) -> S=Y"], "X:INT32[1]=x");
    let at = |data: &Data| data.host().unwrap().as_ptr();
    let run = p.runs[0].0;
    let response = p.response_of(run, "OUTPUT0[4]=four");
    let made = at(&response.outputs[0].data);
    p.respond_run(run, Ok(Some(response)), true);
    assert!(p.requests[&1].inputs.iter().all(|i| at(&i.data) == made));
    assert_eq!(p.execution.pressure().bytes, 0, "the model has it, the execution does not keep it");
    let run = p.runs[0].0;
    let response = p.response_of(run, "S[4]=five");
    let made = at(&response.outputs[0].data);
    p.respond_run(run, Ok(Some(response)), true);
    assert_eq!(at(&p.response.unwrap().outputs[0].data), made);
}

#[test]
fn a_tensor_is_dropped_after_its_last_use() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=a", "plus10(INPUT0=a) -> OUTPUT0=b", "add2(A=a, B=b) -> S=Y"];
    let mut p = start(X, Y, &steps, "X:INT32[3]=xxx");
    assert_eq!(p.execution.pressure().bytes, 0);
    p.answer("plus1", "OUTPUT0[3]=aaa");
    assert_eq!(p.execution.pressure().bytes, 3, "add2 will want it");
    p.answer("plus10", "OUTPUT0[2]=bb");
    assert_eq!(p.execution.pressure().bytes, 0);
}

#[test]
fn a_step_is_an_ordinary_request_s_28() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=t", "opt(INPUT0=t) -> OUTPUT1=Y"];
    let mut given = request("X:INT32[1]=x");
    given.parameters = vec![("k".into(), Parameter::Int(1))];
    given.sequence = Sequence { id: CorrelationId::String("s".into()), start: true, end: false };
    (given.priority, given.timeout_us) = (2, 100);
    let mut p = Player::start(plan(X, "Y:INT32[2]", &steps), given, &[]);
    p.answer("plus1", "OUTPUT0[1]=t");
    for request in p.requests.values() {
        assert_eq!((&*request.id, request.priority, request.timeout_us), ("r", 2, 100));
        assert_eq!(request.sequence, Sequence { id: CorrelationId::String("s".into()), start: true, end: false });
        assert_eq!(request.parameters, [("k".into(), Parameter::Int(1))]);
    }
    // All mapped outputs are requested; none is named if the model has no others.
    assert!(p.requests[&0].outputs.is_empty());
    let names: Vec<_> = p.requests[&1].outputs.iter().map(|o| o.name.to_string()).collect();
    assert_eq!(names, ["OUTPUT1"]);
    assert_eq!(p.answer("opt", "OUTPUT1[2]=z"), "respond Y[2]=z; finish");
    let response = p.response.unwrap();
    assert_eq!((&*response.model_name, &*response.model_version, &*response.id), ("e", "1", "r"));
}

#[test]
fn the_first_error_is_the_response_after_all_runs_ended_s_28() {
    let side = ["gather(INPUT0=X) -> OUTPUT0=Y", "slow(INPUT0=X) -> OUTPUT0=s", "plus1(INPUT0=s) -> OUTPUT0=Z"];
    let mut p = start(X, "Y:INT32[-1] Z:INT32[-1]", &side, "X:INT32[1]=x");
    assert_eq!(p.take_log(), "gather(INPUT0[1]=x); slow(INPUT0[1]=x)");
    assert_eq!(p.fail("gather", Error::internal("onnx runtime error 2: …")), "");
    assert!(p.execution.is_stopping());
    let end = "finish Internal: in ensemble 'e', onnx runtime error 2: …";
    assert_eq!(p.answer("slow", "OUTPUT0[1]=s"), end, "and plus1 does not start");
    let mut p = start(X, "Y:INT32[-1] Z:INT32[-1]", &side, "X:INT32[1]=x");
    p.take_log();
    p.fail("gather", Error::internal("first"));
    assert_eq!(p.fail("slow", Error::invalid("second")), "finish Internal: in ensemble 'e', first");
    let mut p = start(X, Y, &["plus1(INPUT0=X) -> OUTPUT0=Y"], "X:INT32[1]=x");
    p.take_log();
    let rejected = Error::unavailable("[request id: r] Exceeds maximum queue size");
    assert_eq!(
        p.fail("plus1", rejected),
        "finish Unavailable: in ensemble 'e', [request id: r] Exceeds maximum queue size"
    );
}

#[test]
fn a_nested_failure_has_both_names_s_28() {
    let mut models = Models::recorded();
    let inner = models.plan(&signature("inner", 0, X, Y), &["plus1(INPUT0=X) -> OUTPUT0=Y"]).unwrap();
    models.add("inner", 0, X, Y).plan = Some(Arc::new(inner));
    let plan = models.plan(&signature("e", 0, X, Y), &["inner(X=X) -> Y=Y"]).unwrap();
    let mut p = Player::start(plan, request("X:INT32[1]=x"), &[]);
    p.take_log();
    let text = "finish Internal: in ensemble 'e', in ensemble 'inner', onnx";
    assert_eq!(p.fail("inner", Error::internal("in ensemble 'inner', onnx")), text);
}

#[test]
fn batch_dimensions_are_added_and_dropped_between_models_s_29() {
    let models = Models::recorded();
    let check = |max: u32, x: &str, y: &str, steps: &[&str], given: &str, answers: &[(&str, &str, &str)]| {
        let plan = models.plan(&signature("e", max, x, y), steps).unwrap();
        let mut p = Player::start(plan, request(given), &[]);
        for (expected, model, answer) in answers {
            assert_eq!(p.take_log(), *expected);
            if !model.is_empty() {
                let log = p.answer(model, answer);
                p.log.push(log);
            }
        }
    };
    let nb_to_b = ["plus1(INPUT0=X) -> OUTPUT0=t", "plus1_b(INPUT0=t) -> OUTPUT0=Y"];
    check(
        0,
        X,
        "Y:INT32[-1,1]",
        &nb_to_b,
        "X:INT32[1]=x",
        &[
            ("plus1(INPUT0[1]=x)", "plus1", "OUTPUT0[1]=t"),
            ("plus1_b(INPUT0[1,1]=t)", "plus1_b", "OUTPUT0[1,1]=y"),
            ("respond Y[1,1]=y; finish", "", ""),
        ],
    );
    check(
        0,
        X,
        "Y:INT32[-1,1]",
        &nb_to_b,
        "X:INT32[2]=x",
        &[
            ("plus1(INPUT0[2]=x)", "plus1", "OUTPUT0[2]=t"),
            ("plus1_b(INPUT0[2]=t)", "", ""), // which refuses it
        ],
    );
    let b_to_nb = ["plus1_b(INPUT0=X) -> OUTPUT0=t", "plus1(INPUT0=t) -> OUTPUT0=Y"];
    check(
        8,
        "X:INT32[1]",
        "Y:INT32[1]",
        &b_to_nb,
        "X:INT32[1,1]=x",
        &[
            ("plus1_b(INPUT0[1,1]=x)", "plus1_b", "OUTPUT0[1,1]=t"),
            ("plus1(INPUT0[1]=t)", "plus1", "OUTPUT0[1]=y"),
            ("respond Y[1,1]=y; finish", "", ""),
        ],
    );
    check(
        8,
        "X:INT32[1]",
        "Y:INT32[1]",
        &b_to_nb,
        "X:INT32[2,1]=x",
        &[("plus1_b(INPUT0[2,1]=x)", "plus1_b", "OUTPUT0[2,1]=t"), ("plus1(INPUT0[2,1]=t)", "", "")],
    );
    check(
        0,
        "X:INT32[-1,1]",
        "Y:INT32[-1,1]",
        &["plus1_b(INPUT0=X) -> OUTPUT0=Y"],
        "X:INT32[5,1]=x",
        &[("plus1_b(INPUT0[5,1]=x)", "plus1_b", "OUTPUT0[5,1]=y"), ("respond Y[5,1]=y; finish", "", "")],
    );
    // The ensemble's reshape is applied on its way in and out.
    let reshape = ["plus1(INPUT0=X) -> OUTPUT0=Y"];
    check(
        0,
        "X:INT32[2,2]->[4]",
        "Y:INT32[4,1]->[4]",
        &reshape,
        "X:INT32[2,2]=x",
        &[("plus1(INPUT0[4]=x)", "plus1", "OUTPUT0[4]=y"), ("respond Y[4,1]=y; finish", "", "")],
    );
}

#[test]
fn outputs_of_a_step_without_its_inputs_are_absent_s_30() {
    let steps = ["opt(INPUT0=X, INPUT1=Q) -> OUTPUT0=Y, OUTPUT1=Z"];
    let (inputs, outputs) = ("X:INT32[-1] Q:INT32[2]?", "Y:INT32[-1] Z:INT32[2]");
    let mut p = start(inputs, outputs, &steps, "X:INT32[1]=x Q:INT32[2]=q");
    assert_eq!(p.take_log(), "opt(INPUT0[1]=x INPUT1[2]=q)");
    assert_eq!(p.answer("opt", "OUTPUT0[1]=y OUTPUT1[2]=z"), "respond Y[1]=y Z[2]=z; finish");
    let mut p = start(inputs, outputs, &steps, "X:INT32[1]=x");
    assert_eq!(p.take_log(), "opt(INPUT0[1]=x)");
    assert_eq!(p.answer("opt", "OUTPUT0[1]=y"), "respond Y[1]=y; finish", "an absent output is left out");
    // An output that a model does not return is absent for later steps. A model that requires it returns an error.
    let chain = ["opt(INPUT0=X) -> OUTPUT0=t, OUTPUT1=u", "opt(INPUT0=t, INPUT1=u) -> OUTPUT0=Y, OUTPUT1=Z"];
    let mut p = start(X, outputs, &chain, "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.answer("opt", "OUTPUT0[1]=t"), "opt(INPUT0[1]=t)");
    assert_eq!(p.answer("opt", "OUTPUT0[1]=y OUTPUT1[2]=z"), "respond Y[1]=y Z[2]=z; finish");
    let mut p = start(X, outputs, &chain, "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.answer("opt", ""), "opt()");
    let text = "[request id: r] expected number of inputs between 1 and 2 but got 0 inputs for model 'opt'";
    assert_eq!(p.fail("opt", Error::invalid(text)), format!("finish Invalid argument: in ensemble 'e', {text}"));
}

#[test]
fn an_ensemble_without_a_response_returns_the_deadlock_error() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=t", "plus10(INPUT0=t) -> OUTPUT0=Y"];
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    let text = "finish Invalid argument: in ensemble 'e', [request id: r] unexpected deadlock, \
                at least one output is not set while no more ensemble steps can be made";
    assert_eq!(p.end("plus1"), text);
}

#[test]
fn every_response_of_a_decoupled_step_is_an_iteration_s_31() {
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["plus1(INPUT0=o) -> OUTPUT0=OUT"]);
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o0 IDX[1]=0", false), "plus1(INPUT0[1]=o0)");
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o1 IDX[1]=1", false), "plus1(INPUT0[1]=o1)");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=p0"), "respond OUT[1]=p0 IDX[1]=0");
    assert_eq!(p.end("repeat"), "");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=p1"), "respond OUT[1]=p1 IDX[1]=1; finish");
}

#[test]
fn outputs_of_different_iterations_are_never_mixed_s_31() {
    // Two instances of the consumer, and the second iteration is done first. Triton may answer IDX 0 with the OUT of
    // IDX 1.
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["plus1(INPUT0=o) -> OUTPUT0=OUT"]);
    p.respond("repeat", 0, "OUT[1]=o0 IDX[1]=0", false);
    p.respond("repeat", 0, "OUT[1]=o1 IDX[1]=1", true);
    assert_eq!(p.respond("plus1", 1, "OUTPUT0[1]=p1", true), "", "answers keep the order of the iterations");
    assert_eq!(p.answer("plus1", "OUTPUT0[1]=p0"), "respond OUT[1]=p0 IDX[1]=0; respond OUT[1]=p1 IDX[1]=1; finish");
}

#[test]
fn an_iteration_without_outputs_does_not_block_later_ones() {
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["plus1(INPUT0=o) -> OUTPUT0=OUT"]);
    p.respond("repeat", 0, "OUT[1]=o0 IDX[1]=0", false);
    p.respond("repeat", 0, "OUT[1]=o1 IDX[1]=1", true);
    assert_eq!(p.respond("plus1", 1, "OUTPUT0[1]=p1", true), "");
    assert_eq!(p.end("plus1"), "respond OUT[1]=p1 IDX[1]=1; finish", "it ended without a response");
}

#[test]
fn a_decoupled_step_may_have_no_response_s_31() {
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["plus1(INPUT0=o) -> OUTPUT0=OUT"]);
    assert_eq!(p.end("repeat"), "finish");
    // A response without outputs is not an iteration.
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["plus1(INPUT0=o) -> OUTPUT0=OUT"]);
    assert_eq!(p.respond("repeat", 0, "", false), "");
    assert_eq!(p.respond("repeat", 0, "", true), "finish");
}

#[test]
fn decoupled_steps_may_follow_each_other_s_31() {
    let steps = ["square(IN=X) -> OUT=t", "square2(IN=t) -> OUT=Y"];
    let mut p = start("X:INT32[1]", "Y:INT32[1]", &steps, "X:INT32[1]=x");
    assert_eq!(p.take_log(), "square(IN[1]=x)");
    assert_eq!(p.respond("square", 0, "OUT[1]=0", false), "square2(IN[1]=0)");
    assert_eq!(p.respond("square", 0, "OUT[1]=1", true), "square2(IN[1]=1)");
    assert_eq!(p.respond("square2", 1, "OUT[1]=10", false), "respond Y[1]=10");
    assert_eq!(p.respond("square2", 0, "OUT[1]=00", false), "respond Y[1]=00");
    assert_eq!(p.respond("square2", 1, "OUT[1]=11", true), "respond Y[1]=11");
    assert_eq!(p.end("square2"), "finish");
}

#[test]
fn a_failed_iteration_ends_the_request_s_31() {
    let mut p = repeat("OUT:INT32[-1] IDX:UINT32[1]", &["gather(INPUT0=o) -> OUTPUT0=OUT"]);
    p.respond("repeat", 0, "OUT[1]=o0 IDX[1]=0", false);
    p.respond("repeat", 0, "OUT[1]=o1 IDX[1]=1", false);
    assert_eq!(p.answer("gather", "OUTPUT0[1]=p0"), "respond OUT[1]=p0 IDX[1]=0");
    assert_eq!(p.fail("gather", Error::internal("no")), "");
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o2 IDX[1]=2", false), "", "nothing starts any more");
    assert_eq!(p.execution.pressure().iterations, 0, "and nothing is kept");
    assert_eq!(p.end("repeat"), "finish Internal: in ensemble 'e', no");
}

#[test]
fn a_failure_in_the_middle_of_a_decoupled_step_ends_the_request() {
    let mut p = repeat("o:INT32[1] IDX:UINT32[1]", &[]);
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o0 IDX[1]=0", false), "respond o[1]=o0 IDX[1]=0");
    let run = p.runs[0].0;
    assert_eq!(p.respond_run(run, Err(Error::unknown("simulated failure")), false), "");
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o1 IDX[1]=1", false), "");
    assert_eq!(p.end("repeat"), "finish Unknown: in ensemble 'e', simulated failure");
}

/// `o` of `repeat` goes through `plus1` into a model that takes iterations in order.
fn stateful() -> Player {
    let mut models = Models::recorded();
    models.add("state", 0, "I:INT32[-1]", "0:INT32[-1]").in_order();
    let steps = [REPEAT, "plus1(INPUT0=o) -> OUTPUT0=p", "state(I=p) -> 0=OUT"];
    let plan = models.plan(&signature("e", 0, REPEAT_IN, "OUT:INT32[-1]"), &steps).unwrap();
    let mut p = Player::start(plan, request("IN:INT32[1]=i DELAY:UINT32[1]=d WAIT:UINT32[1]=w"), &[]);
    p.take_log();
    for i in 0..3 {
        p.respond("repeat", 0, &format!("OUT[1]=o{i}"), i == 2);
    }
    p
}

#[test]
fn a_model_that_keeps_state_gets_iterations_in_order_s_31() {
    let mut p = stateful();
    assert_eq!(p.respond("plus1", 2, "OUTPUT0[1]=p2", true), "");
    assert_eq!(p.respond("plus1", 0, "OUTPUT0[1]=p0", true), "state(I[1]=p0)");
    assert_eq!(p.respond("plus1", 0, "OUTPUT0[1]=p1", true), "state(I[1]=p1); state(I[1]=p2)");
    for i in 0..3 {
        let end = if i == 2 { "; finish" } else { "" };
        assert_eq!(p.answer("state", &format!("0[1]=s{i}")), format!("respond OUT[1]=s{i}{end}"));
    }
}

#[test]
fn the_order_skips_an_iteration_that_does_not_reach_the_step() {
    let mut p = stateful();
    assert_eq!(p.respond("plus1", 2, "OUTPUT0[1]=p2", true), "");
    let first = p.runs[0].0;
    assert_eq!(p.respond_run(first, Ok(None), true), "", "the second may still come");
    let second = p.runs[0].0;
    assert_eq!(p.respond_run(second, Ok(None), true), "state(I[1]=p2)");
    assert_eq!(p.answer("state", "0[1]=s2"), "respond OUT[1]=s2; finish");
}

#[test]
fn an_endless_step_before_a_slow_one_is_bounded() {
    let limits = Limits { iterations_max: 3, bytes_max: 1 << 20 };
    let steps = [REPEAT, "slow(INPUT0=o) -> OUTPUT0=OUT"];
    let endless = |limits| {
        let given = request("IN:INT32[1]=i DELAY:UINT32[1]=d WAIT:UINT32[1]=w");
        let mut p = Player::limited(plan(REPEAT_IN, "OUT:INT32[-1] IDX:UINT32[1]", &steps), limits, given, &[]);
        p.take_log();
        p
    };
    let mut p = endless(limits);
    for i in 0..3 {
        assert_eq!(p.execution.pressure().room, 3 - i);
        p.respond("repeat", 0, "OUT[1]=o IDX[1]=i", false);
    }
    // Every completed iteration frees room: a caller that requests responses accordingly never exceeds the limit.
    assert_eq!(p.execution.pressure().room, 0);
    p.answer("slow", "OUTPUT0[1]=s");
    assert_eq!(p.execution.pressure().room, 1);
    p.respond("repeat", 0, "OUT[1]=o IDX[1]=i", false);
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o IDX[1]=i", false), "");
    let mut log = vec![];
    for _ in 0..3 {
        log.push(p.answer("slow", "OUTPUT0[1]=s"));
    }
    log.push(p.end("repeat"));
    let text = "finish Resource exhausted: in ensemble 'e', model 'repeat' sends responses faster than the next steps \
         process them: 3 of its responses are waiting; at most 3 responses and 1048576 bytes may";
    assert_eq!(log, ["", "", "", text]);

    // Only kept tensors count; the first iteration may have any size.
    let mut p = endless(Limits { iterations_max: 100, bytes_max: 8 });
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o IDX[20]=aaaaaaaaaaaaaaaaaaaa", false), "slow(INPUT0[1]=o)");
    assert_eq!((p.execution.pressure().bytes, p.execution.pressure().iterations), (20, 1));
    assert_eq!(p.respond("repeat", 0, "OUT[1]=o IDX[1]=b", false), "");
    assert!(p.execution.is_stopping());
    p.answer("slow", "OUTPUT0[1]=s");
    let text = "finish Resource exhausted: in ensemble 'e', model 'repeat' sends responses faster than the next steps \
         process them: 1 of its responses and the next one, 22 bytes, are waiting; at most 100 responses and 8 bytes \
         may";
    assert_eq!(p.end("repeat"), text);
}

#[test]
fn a_cancelled_request_starts_nothing_and_ends_with_its_runs_s_41() {
    let steps = ["slow(INPUT0=X) -> OUTPUT0=t", "slow(INPUT0=t) -> OUTPUT0=Y"];
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.cancel(), "");
    let end = "finish <invalid code>: in ensemble 'e', the client went away";
    assert_eq!(p.answer("slow", "OUTPUT0[1]=t"), end);
    assert_eq!(p.cancel(), "", "it is over");
    // The error of a step that is cancelled with its ensemble has no text.
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.fail("slow", Error::cancelled("")), "finish <invalid code>: ");
    // The runs end as cancelled too; the first reason is kept.
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    p.cancel();
    assert_eq!(p.fail("slow", Error::cancelled("")), end);
}

fn overridden(parameters: Vec<(tensor::Name, Parameter)>) -> Player {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=t", "plus10(INPUT0=t) -> OUTPUT0=u", "slow(INPUT0=u) -> OUTPUT0=Y"];
    let mut p = start(X, Y, &steps, "X:INT32[1]=x");
    p.take_log();
    let run = p.runs[0].0;
    let mut response = p.response_of(run, "OUTPUT0[1]=t");
    response.parameters = parameters;
    let log = p.respond_run(run, Ok(Some(response)), true);
    p.log.push(log);
    p
}

#[test]
fn a_response_may_change_the_sequence_for_later_steps_s_33() {
    let mut p =
        overridden(vec![("sequence_id".into(), Parameter::Int(7)), ("sequence_start".into(), Parameter::Bool(true))]);
    p.answer("plus10", "OUTPUT0[1]=u");
    let seven = Sequence { id: CorrelationId::Number(7), start: true, end: false };
    assert_eq!(p.requests[&0].sequence, Sequence::default());
    assert_eq!([&p.requests[&1].sequence, &p.requests[&2].sequence], [&seven, &seven], "what is behind inherits it");
    p.answer("slow", "OUTPUT0[1]=y");
    let parameters: Vec<_> = p.response.unwrap().parameters;
    assert_eq!(
        parameters,
        [
            ("sequence_id".into(), Parameter::Int(7)),
            ("sequence_start".into(), Parameter::Bool(true)),
            ("sequence_end".into(), Parameter::Bool(false)),
        ]
    );
}

#[test]
fn every_response_has_the_sequence_or_zero_s_33() {
    let mut p = overridden(vec![("other".into(), Parameter::Double(1.0))]);
    p.answer("plus10", "OUTPUT0[1]=u");
    p.answer("slow", "OUTPUT0[1]=y");
    let parameters: Vec<_> = p.response.unwrap().parameters;
    assert_eq!(
        parameters,
        [
            ("sequence_id".into(), Parameter::Int(0)),
            ("sequence_start".into(), Parameter::Bool(false)),
            ("sequence_end".into(), Parameter::Bool(false)),
        ]
    );
}

#[test]
fn a_response_without_data_has_no_sequence_s_33() {
    let mut p = start(X, Y, &["plus1(INPUT0=X) -> OUTPUT0=Y"], "X:INT32[0]=");
    assert_eq!(p.take_log(), "plus1(INPUT0[0]=)");
    assert_eq!(p.answer("plus1", "OUTPUT0[0]="), "respond Y[0]=; finish");
    assert_eq!(p.response.unwrap().parameters, []);
}

#[test]
fn a_sequence_parameter_of_a_wrong_type_fails_the_request_s_33() {
    let mut p = overridden(vec![("sequence_id".into(), Parameter::Double(1.0))]);
    let text = "finish Invalid argument: in ensemble 'e', expected parameter 'sequence_id' to be \
                TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING, got TRITONSERVER_PARAMETER_DOUBLE";
    assert_eq!(p.take_log(), text);
}

#[test]
fn a_second_response_of_a_model_that_is_not_decoupled_is_ignored() {
    let mut p = start(X, Y, &["plus1(INPUT0=X) -> OUTPUT0=Y"], "X:INT32[1]=x");
    p.take_log();
    assert_eq!(p.respond("plus1", 0, "OUTPUT0[1]=y", false), "respond Y[1]=y");
    assert_eq!(p.respond("plus1", 0, "OUTPUT0[1]=z", true), "finish");
    assert_eq!(p.execution.runs().count(), 0);
}

#[test]
fn an_output_has_the_form_that_the_client_requested() {
    let mut given = request("X:INT32[1]=x");
    given.default_form.classification = 3;
    let mut p = Player::start(plan(X, Y, &["plus1(INPUT0=X) -> OUTPUT0=Y"]), given, &[]);
    assert_eq!(p.requests[&0].default_form.classification, 0, "steps give tensors");
    p.answer("plus1", "OUTPUT0[1]=y");
    assert_eq!(p.response.unwrap().outputs[0].form.classification, 3);
}
