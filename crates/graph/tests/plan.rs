//! Checks of an ensemble at load: the recorded responses of Triton (suite `ensemble_bad`), and limits.

mod common;
use common::{Models, signature, step};
use graph::{CALLS_MAX, DEPTH_MAX, MAPPINGS_MAX, STEPS_MAX};
use std::sync::Arc;
use tensor::Code;

const X: &str = "X:INT32[-1]";
const Y: &str = "Y:INT32[-1]";

/// The error text of the ensemble, or `ok`, `ok decoupled`.
fn check(name: &str, max_batch_size: u32, inputs: &str, outputs: &str, steps: &[&str], expected: &str) {
    let got = match Models::recorded().plan(&signature(name, max_batch_size, inputs, outputs), steps) {
        Ok(plan) if plan.decoupled() => "ok decoupled".to_owned(),
        Ok(_) => "ok".to_owned(),
        Err(e) => {
            assert_eq!(e.code(), Code::InvalidArg);
            e.message().to_owned()
        }
    };
    assert_eq!(got, expected, "{name}");
}

#[test]
fn maps_name_inputs_and_outputs_that_exist_s_26() {
    let check = |name: &str, steps: &[&str], expected: &str| check(name, 0, X, Y, steps, expected);
    check("b_ok", &["plus1(INPUT0=X) -> OUTPUT0=Y"], "ok");
    check(
        "b_badin",
        &["plus1(NOPE=X) -> OUTPUT0=Y"],
        "in ensemble b_badin, ensemble tensor X is mapping to non-existing input NOPE in model plus1",
    );
    check(
        "b_extra_in",
        &["plus1(INPUT0=X, NOPE=X) -> OUTPUT0=Y"],
        "in ensemble b_extra_in, ensemble tensor X is mapping to non-existing input NOPE in model plus1",
    );
    check(
        "b_badout",
        &["plus1(INPUT0=X) -> NOPE=Y"],
        "in ensemble b_badout, ensemble tensor Y is mapped from non-existing output NOPE in model plus1",
    );
    check(
        "b_unmapped",
        &["add2(A=X) -> S=Y"],
        "in ensemble b_unmapped, input B in model add2 is not mapped to any ensemble tensors",
    );
    check("b_opt_unmapped", &["opt(INPUT0=X) -> OUTPUT0=Y"], "ok");
}

#[test]
fn both_ends_of_a_tensor_have_one_datatype_s_26() {
    let f32_x = "X:FP32[-1]";
    check(
        "b_type_in",
        0,
        f32_x,
        Y,
        &["plus1(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble b_type_in, ensemble tensor X: inconsistent data type: \
         TYPE_FP32 is inferred from model b_type_in while TYPE_INT32 is inferred from model plus1",
    );
    check(
        "b_type_out",
        0,
        X,
        "Y:FP32[-1]",
        &["plus1(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble b_type_out, ensemble tensor Y: inconsistent data type: \
         TYPE_FP32 is inferred from model b_type_out while TYPE_INT32 is inferred from model plus1",
    );
    check(
        "b_type_step",
        0,
        X,
        "Y:FP32[-1]",
        &["plus1(INPUT0=X) -> OUTPUT0=t", "f32(INPUT0=t) -> OUTPUT0=Y"],
        "in ensemble b_type_step, ensemble tensor t: inconsistent data type: \
         TYPE_INT32 is inferred from model plus1 while TYPE_FP32 is inferred from model f32",
    );
    check(
        "strings",
        0,
        "X:BYTES[-1]",
        Y,
        &["plus1(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble strings, ensemble tensor X: inconsistent data type: \
         TYPE_STRING is inferred from model strings while TYPE_INT32 is inferred from model plus1",
    );
}

#[test]
fn both_ends_of_a_tensor_have_shapes_that_agree_s_26() {
    check(
        "b_shape_in",
        0,
        "X:INT32[8]",
        "Y:INT32[4]",
        &["fixed4(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble b_shape_in, ensemble tensor X: inconsistent shape: \
         [8] is inferred from model b_shape_in while [4] is inferred from model fixed4",
    );
    check(
        "b_shape_out",
        0,
        "X:INT32[4]",
        "Y:INT32[8]",
        &["fixed4(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble b_shape_out, ensemble tensor Y: inconsistent shape: \
         [8] is inferred from model b_shape_out while [4] is inferred from model fixed4",
    );
    check(
        "b_rank_out",
        0,
        "X:INT32[-1,-1]",
        Y,
        &["rank2(INPUT0=X) -> OUTPUT0=Y"],
        "in ensemble b_rank_out, ensemble tensor Y: inconsistent shape: \
         [-1] is inferred from model b_rank_out while [-1,-1] is inferred from model rank2",
    );
    check(
        "b_shape_step",
        0,
        "X:INT32[4]",
        "Y:INT32[8]",
        &["fixed4(INPUT0=X) -> OUTPUT0=t", "fixed8(INPUT0=t) -> OUTPUT0=Y"],
        "in ensemble b_shape_step, ensemble tensor t: inconsistent shape: \
         [4] is inferred from model fixed4 while [8] is inferred from model fixed8",
    );
    // A dimension that is variable on one side is checked at run time.
    let wild = ["fixed4(INPUT0=X) -> OUTPUT0=t", "plus1(INPUT0=t) -> OUTPUT0=Y"];
    check("b_shape_wild", 0, "X:INT32[4]", "Y:INT32[8]", &wild, "ok");
    check("b_shape_varin", 0, X, Y, &["fixed4(INPUT0=X) -> OUTPUT0=Y"], "ok");
    let reshaped = ["plus1(INPUT0=X) -> OUTPUT0=Y"];
    check("e_reshape", 0, "X:INT32[2,2]->[4]", "Y:INT32[4,1]->[4]", &reshaped, "ok");
}

#[test]
fn batch_dimensions_may_differ_and_sizes_may_not_s_26() {
    let one = ["X:INT32[1]", "Y:INT32[1]"];
    check(
        "b_batch",
        16,
        one[0],
        one[1],
        &["plus1_b(INPUT0=X) -> OUTPUT0=Y"],
        "ensemble b_batch allows maximum batch size 16, \
         but it contains model plus1_b which only allows maximum batch size to be 8",
    );
    let chain = ["plus1_b(INPUT0=X) -> OUTPUT0=t", "plus1_b4(INPUT0=t) -> OUTPUT0=Y"];
    check(
        "b_batch_chain",
        8,
        one[0],
        one[1],
        &chain,
        "ensemble b_batch_chain allows maximum batch size 8, \
         but it contains model plus1_b4 which only allows maximum batch size to be 4",
    );
    check("e_batch4", 4, one[0], one[1], &chain, "ok");
    check("b_batch_nb", 4, one[0], one[1], &["plus1(INPUT0=X) -> OUTPUT0=Y"], "ok");
    check("b_b_in_nb", 0, one[0], one[1], &["plus1_b(INPUT0=X) -> OUTPUT0=Y"], "ok");
    check("e_nb_of_b", 0, "X:INT32[-1,1]", "Y:INT32[-1,1]", &["plus1_b(INPUT0=X) -> OUTPUT0=Y"], "ok");
}

#[test]
fn tensors_of_different_decoupled_origin_do_not_meet_s_31() {
    let mixed = |name: &str, inputs: &str, outputs: &str, steps: &[&str]| {
        // Triton prints the ensemble's name instead of the step's.
        let text = format!(
            "in ensemble {name}, step of model '{name}' receives inputs originated from different decoupled models"
        );
        check(name, 0, inputs, outputs, steps, &text);
    };
    let one = "X:INT32[1]";
    let join = "add2(A=a, B=b) -> S=Y";
    mixed("b_dec_join", one, Y, &["square(IN=X) -> OUT=a", "square2(IN=X) -> OUT=b", join]);
    mixed("b_dec_join_same", one, Y, &["square(IN=X) -> OUT=a", "square(IN=X) -> OUT=b", join]);
    mixed("b_dec_nested_join", one, Y, &["square(IN=X) -> OUT=a", "square2(IN=a) -> OUT=b", join]);
    let step =
        ["square(IN=X) -> OUT=a", "plus1(INPUT0=a) -> OUTPUT0=c", "square2(IN=X) -> OUT=b", "add2(A=c, B=b) -> S=Y"];
    mixed("b_dec_join_step", one, Y, &step);
    let repeat = "repeat(IN=IN, DELAY=DELAY, WAIT=WAIT) -> OUT=o, IDX=IDX";
    let inputs = "IN:INT32[-1] DELAY:UINT32[-1] WAIT:UINT32[1] X:INT32[-1]";
    let outputs = "OUT:INT32[-1] IDX:UINT32[1]";
    mixed("b_d_rep_join", inputs, outputs, &[repeat, "add2(A=o, B=X) -> S=OUT"]);
    mixed("b_d_rep_joinstep", inputs, outputs, &[repeat, "plus10(INPUT0=X) -> OUTPUT0=x", "add2(A=o, B=x) -> S=OUT"]);
    // The rule also applies to the outputs of the ensemble.
    let side = "o:INT32[1] IDX:UINT32[1] Y:INT32[-1]";
    mixed("b_d_rep_side", inputs, side, &[repeat, "plus1(INPUT0=X) -> OUTPUT0=Y"]);
    mixed("b_d_rep_sq", inputs, "Y:INT32[1] IDX:UINT32[1]", &[repeat, "square(IN=o) -> OUT=Y"]);
    let two = ["square(IN=X) -> OUT=Y", "square2(IN=X2) -> OUT=Z"];
    mixed("b_d_two_dec", "X:INT32[1] X2:INT32[1]", "Y:INT32[1] Z:INT32[1]", &two);
}

#[test]
fn an_ensemble_is_decoupled_when_a_step_is_s_31() {
    check("e_sq", 0, "X:INT32[1]", "Y:INT32[1]", &["square(IN=X) -> OUT=Y"], "ok decoupled");
    let around = ["plus1(INPUT0=X) -> OUTPUT0=t", "square(IN=t) -> OUT=u", "plus10(INPUT0=u) -> OUTPUT0=Y"];
    check("e_plus_sq_plus", 0, X, Y, &around, "ok decoupled");
    check(
        "e_sq_sq",
        0,
        "X:INT32[1]",
        "Y:INT32[1]",
        &["square(IN=X) -> OUT=t", "square2(IN=t) -> OUT=Y"],
        "ok decoupled",
    );
    let steps: Vec<_> = around.iter().rev().copied().collect();
    check("any_order", 0, X, Y, &steps, "ok decoupled");
}

#[test]
fn ensembles_that_violate_the_static_rules_are_rejected_here_too() {
    let check = |name: &str, outputs: &str, steps: &[&str], expected: &str| check(name, 0, X, outputs, steps, expected);
    let twice = ["plus1(INPUT0=X) -> OUTPUT0=Y", "plus10(INPUT0=X) -> OUTPUT0=Y"];
    check(
        "b_twice",
        Y,
        &twice,
        "ensemble tensor 'Y' can appear in an output map only once for ensemble 'b_twice' step 1",
    );
    let unproduced = ["add2(A=X, B=t) -> S=Y"];
    check("b_unproduced2", Y, &unproduced, "ensemble tensor 't' is unused in ensemble 'b_unproduced2'");
    let cycle = ["add2(A=X, B=u) -> S=t", "plus1(INPUT0=t) -> OUTPUT0=u", "plus10(INPUT0=t) -> OUTPUT0=Y"];
    check("b_cycle", Y, &cycle, "output 'Y' for ensemble 'b_cycle' is not written");
    check("b_selfloop", Y, &["add2(A=X, B=Y) -> S=Y"], "output 'Y' for ensemble 'b_selfloop' is not written");
    let unused = ["plus1(INPUT0=X) -> OUTPUT0=Y"];
    check(
        "b_unused_out",
        "Y:INT32[-1] Z:INT32[-1]",
        &unused,
        "ensemble output 'Z' for ensemble b_unused_out' is not used",
    );
}

#[test]
fn a_step_may_write_an_input_of_the_ensemble() {
    check("b_overwrite_in", 0, X, X, &["plus1(INPUT0=X) -> OUTPUT0=X"], "ok");
    let back = ["plus1(INPUT0=X) -> OUTPUT0=Y", "plus10(INPUT0=Y) -> OUTPUT0=X"];
    check("b_overwrite_in2", 0, X, Y, &back, "ok");
}

#[test]
fn labels_come_from_the_model_that_makes_the_output_c_11() {
    let steps = ["plus1(INPUT0=X) -> OUTPUT0=t", "opt(INPUT0=t) -> OUTPUT0=Y, OUTPUT1=Z"];
    let outputs = "Y:INT32[-1] Z:INT32[2] X:INT32[-1]";
    let plan = Models::recorded().plan(&signature("e", 0, X, outputs), &steps).unwrap();
    let origin = |o| plan.origin(o).map(|(step, output)| (step.model.as_str(), output));
    assert_eq!(
        [plan.is_taken(0, 0), plan.is_taken(1, 0), plan.is_taken(1, 1), plan.is_taken(2, 0)],
        [true, false, false, false]
    );
    assert_eq!([origin(0), origin(1), origin(2), origin(3)], [Some(("opt", 0)), Some(("opt", 1)), None, None]);
}

#[test]
fn steps_and_maps_have_a_limit() {
    let chain = |steps: usize| -> Vec<_> {
        let name = |i: usize| {
            if i == steps {
                "Y".to_owned()
            } else if i == 0 {
                "X".to_owned()
            } else {
                format!("t{i}")
            }
        };
        (0..steps).map(|i| step(&format!("plus1(INPUT0={}) -> OUTPUT0={}", name(i), name(i + 1)))).collect()
    };
    let e = signature("e", 0, X, Y);
    let models = Models::recorded();
    assert!(models.compile(&e, &chain(STEPS_MAX), 0).is_ok());
    let error = models.compile(&e, &chain(STEPS_MAX + 1), 0).err().unwrap();
    assert_eq!(error.message(), "ensemble 'e' has 1025 steps: at most 1024 are supported");

    let mut models = Models::default();
    let wide = |prefix: &str, n: usize| (0..n).map(|i| format!("{prefix}{i}:INT32[1]")).collect::<Vec<_>>().join(" ");
    let line = |n: usize| {
        let pairs: Vec<_> = (0..n).map(|i| format!("I{i}=X{i}")).collect();
        step(&format!("wide({}) -> O=Y", pairs.join(", ")))
    };
    let check = |models: &mut Models, n: usize| {
        models.add("wide", 0, &wide("I", n), "O:INT32[1]");
        models.compile(&signature("e", 0, &wide("X", n), "Y:INT32[1]"), &[line(n)], 0).err()
    };
    let fits = (MAPPINGS_MAX - 2) / 2;
    assert_eq!(check(&mut models, fits), None);
    let error = check(&mut models, fits + 1).unwrap();
    let text = "ensemble 'e' has 16386 inputs, outputs and entries in its maps: at most 16384 are supported";
    assert_eq!(error.message(), text);
}

/// A chain of ensembles: each calls the previous one this many times.
fn nested(levels: usize, times: usize) -> Option<String> {
    let mut models = Models::recorded();
    let mut inner = "plus1".to_owned();
    for level in 0..levels {
        let name = format!("e{level}");
        let (input, output) = if level == 0 { ("INPUT0", "OUTPUT0") } else { ("X", "Y") };
        let tensor = |i: usize| match i {
            0 => "X".to_owned(),
            i if i == times => "Y".to_owned(),
            i => format!("t{i}"),
        };
        let steps: Vec<_> = (0..times)
            .map(|i| step(&format!("{inner}({input}={}) -> {output}={}", tensor(i), tensor(i + 1))))
            .collect();
        match models.compile(&signature(&name, 0, X, Y), &steps, 0) {
            Ok(plan) => models.add(&name, 0, X, Y).plan = Some(Arc::new(plan)),
            Err(e) => return Some(e.message().to_owned()),
        }
        inner = name;
    }
    None
}

#[test]
fn calls_of_nested_ensembles_are_limited() {
    assert_eq!(nested(DEPTH_MAX as usize + 1, 1), None);
    let deep = "ensemble 'e17' has 17 ensembles inside one another: at most 16 are supported";
    assert_eq!(nested(DEPTH_MAX as usize + 2, 1).unwrap(), deep);
    // 2 + 4 + … + 2^14
    let doubled = format!(
        "ensemble 'e13' has 32766 calls for each request, those inside its composing ensembles included: \
         at most {CALLS_MAX} are supported"
    );
    assert_eq!(nested(30, 2).unwrap(), doubled);
}
