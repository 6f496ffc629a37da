//! Blocks that front ends fill and send themselves, over a transport without processes.

#![warn(clippy::too_many_lines)]

mod support;

use backend::{InstanceEvents, Model, gather};
use backend_remote::generated::{ANSWER_FLAG_FINAL, Answer, AnswerHead, Frame, Header, Place, ResultHead, TensorHead};
use backend_remote::{End, Limits, Next, Reading, Way, frames};
use std::sync::Arc;
use std::time::Duration;
use support::stage::*;
use support::*;
use tensor::{Data, DataType, Error, RegionRef};

/// Bytes of a tensor that may be lent.
const LARGE: usize = 100_000;
/// A part of the segments' memory may be lent at once: here 2 MiB.
const ARENA: u64 = 8 << 20;

fn served() -> (Arc<Stage>, Arc<dyn Model>) {
    let stage = Stage::new(ready("{}"));
    let model = stage.start(Limits { arena_bytes_max: ARENA, ..limits() }).expect("starts");
    (stage, model)
}

fn lend(model: &dyn Model, bytes: usize) -> Option<RegionRef> {
    remote(model).lend_input(bytes)
}

/// A request whose input is this region, and whose outputs may be lent.
fn asking(region: &RegionRef) -> backend::BatchEntry {
    let shape = [region.len() as i64];
    let mut entry = request("r", &[("IN", DataType::Uint8, Data::Region(region.clone()), &shape)]);
    entry.request.sends_regions = true;
    entry
}

/// Place, segment, offset and bytes of the only tensor of the last batch.
fn sent(stage: &Stage) -> (u8, u16, u64, u64) {
    let frame = stage.runner().heard(Frame::Execute);
    let head = frame.windows(TensorHead::BYTES).rev().find_map(|head| {
        let head = TensorHead::read(head.first_chunk()?);
        (head.name_bytes == 2 && head.datatype == DataType::Uint8 as u8 && head.rank == 1).then_some(head)
    });
    let head = head.expect("a tensor");
    (head.place, head.segment, head.offset, head.bytes)
}

fn give_back(stage: &Stage, segment: u16, offset: u64) {
    let id = (u64::from(segment) << backend_remote::generated::BLOCK_OFFSET_BITS) | offset;
    stage.runner().say(Way::Side, &framed(Frame::Release, 0, 1, &id.to_le_bytes()));
}

/// A result with one output in a block.
fn result_in(batch: u64, place: Place, offset: u64, bytes: u64) -> Vec<u8> {
    result_of(batch, 1, place, offset, bytes)
}

/// A result with so many outputs, all in the same block.
fn result_of(batch: u64, outputs: u16, place: Place, offset: u64, bytes: u64) -> Vec<u8> {
    let mut body = Vec::new();
    ResultHead { batch, releases: 0, error_bytes: 0 }.write(&mut body);
    let (kind, flags) = (Answer::Response as u8, ANSWER_FLAG_FINAL);
    AnswerHead { kind, flags, outputs, ..AnswerHead::default() }.write(&mut body);
    let (datatype, place) = (DataType::Uint8 as u8, place as u8);
    for _ in 0..outputs {
        TensorHead { name_bytes: 3, datatype, rank: 1, place, offset, bytes, ..TensorHead::default() }.write(&mut body);
        body.extend_from_slice(b"OUT");
        body.extend_from_slice(&(bytes as i64).to_le_bytes());
    }
    framed(Frame::Result, 0, 1, &body)
}

#[test]
fn an_input_in_a_lent_block_is_not_copied_and_is_freed_after_both_sides() {
    let (stage, model) = served();
    for round in 0..500u64 {
        let region = lend(&*model, LARGE).expect("room");
        region.copy_from(0, &round.to_le_bytes()).expect("inside");
        let ran = run(&*model, 0, vec![asking(&region)]);
        let (place, segment, offset, bytes) = sent(&stage);
        assert_eq!((place, bytes), (Place::Request as u8, LARGE as u64));
        assert_eq!(region.extent().start, offset, "the block itself");
        stage.runner().say(Way::Work, &result(round + 1, &[7]));
        ran.answer().expect("an answer");
        // The last to have it frees it: after 80 rounds the segments would be full.
        if round % 2 == 0 {
            drop(region);
            give_back(&stage, segment, offset);
        } else {
            give_back(&stage, segment, offset);
            assert!(region.copy_from(0, &[1]).is_ok(), "the front end still has it");
            drop(region);
        }
    }
    for _ in 0..500 {
        drop(lend(&*model, LARGE).expect("never sent, and free at once"));
    }
}

#[test]
fn a_lent_block_is_sent_once_and_a_part_of_it_is_copied() {
    let (stage, model) = served();
    let region = lend(&*model, LARGE).expect("room");
    region.copy_from(0, &[9; LARGE]).expect("inside");
    let first = run(&*model, 0, vec![asking(&region)]);
    let (_, segment, offset, _) = sent(&stage);
    stage.runner().say(Way::Work, &result(1, &[1]));
    first.answer().expect("an answer");
    let second = run(&*model, 0, vec![asking(&region)]);
    let (place, _, other, _) = sent(&stage);
    assert!(place == Place::Request as u8 && other != offset, "the runner has the block: a copy");
    stage.runner().say(Way::Work, &result(2, &[1]));
    second.answer().expect("an answer");
    give_back(&stage, segment, offset);
    let part = tensor::part::part(&region, 64, LARGE - 64).expect("inside");
    let third = run(&*model, 0, vec![asking(&part)]);
    assert_ne!(sent(&stage).2, offset + 64, "a copy");
    stage.runner().say(Way::Work, &result(3, &[1]));
    third.answer().expect("an answer");
    give_back(&stage, segment, offset);
    assert_eq!(*stage.runner().ends.lock(), [End::Killed], "it gave back what it did not have");
}

#[test]
fn small_inputs_too_many_bytes_and_several_instances_are_copied() {
    let (_stage, model) = served();
    assert!(lend(&*model, 1000).is_none());
    let held: Vec<_> = std::iter::from_fn(|| lend(&*model, 500_000)).collect();
    assert_eq!(held.len(), 4, "a quarter of 8 MiB");
    drop(held);
    assert!(lend(&*model, 500_000).is_some());
    assert!(lend(&*model, usize::MAX).is_none());
}

#[test]
fn a_block_outlives_its_runner_and_the_next_runner_gets_a_copy() {
    struct Nobody;
    impl InstanceEvents for Nobody {
        fn down(&self, _: u32, _: Error) {}
        fn up(&self, _: u32) {}
    }
    let (stage, model) = served();
    remote(&*model).serve(Arc::new(Nobody));
    let region = lend(&*model, LARGE).expect("room");
    region.copy_from(0, &[5; LARGE]).expect("inside");
    stage.runner().dies();
    stage.pass(Duration::from_secs(3600));
    let ran = run(&*model, 0, vec![asking(&region)]);
    assert_eq!(sent(&stage).3, LARGE as u64);
    stage.runner().say(Way::Work, &result(1, &[1]));
    ran.answer().expect("an answer");
    assert_eq!(region.read_at::<2>(LARGE - 2), Ok([5, 5]));
}

#[test]
fn an_output_is_lent_until_it_was_sent() {
    let (stage, model) = served();
    let region = lend(&*model, LARGE).expect("room");
    let ran = run(&*model, 0, vec![asking(&region)]);
    stage.runner().say(Way::Work, &result_in(1, Place::Response, 64, LARGE as u64));
    let mut answer = ran.answer().expect("an answer");
    let Data::Region(output) = std::mem::take(&mut answer.outputs[0].data) else { panic!("not copied") };
    assert!(output.is_lent() && output.len() == LARGE && output.extent().start == 64);
    // The next batch says which blocks are free: not this one, as long as it is being sent.
    let releases = |stage: &Stage| {
        let frame = stage.runner().heard(Frame::Execute);
        u32::from_le_bytes(frame[Header::BYTES + 8..][..4].try_into().expect("a number"))
    };
    let next = run(&*model, 0, vec![bytes("next", 1)]);
    assert_eq!(releases(&stage), 0);
    stage.runner().say(Way::Work, &result(2, &[1]));
    next.answer().expect("an answer");
    drop(output);
    let last = run(&*model, 0, vec![bytes("last", 1)]);
    assert_eq!(releases(&stage), 1);
    stage.runner().say(Way::Work, &result(3, &[1]));
    last.answer().expect("an answer");
}

#[test]
fn outputs_in_request_blocks_are_copied_and_outputs_outside_are_rejected() {
    let (stage, model) = served();
    let mut batch = 0;
    let mut output = |entry: backend::BatchEntry, place: Place, bytes: u64| {
        batch += 1;
        let ran = run(&*model, 0, vec![entry]);
        stage.runner().say(Way::Work, &result_in(batch, place, 0, bytes));
        ran.answer().expect("an answer").outputs[0].data.clone()
    };
    let region = lend(&*model, LARGE).expect("room");
    let copied = [
        output(asking(&region), Place::Request, LARGE as u64),
        output(bytes("r", 1), Place::Response, LARGE as u64),
        output(asking(&region), Place::Response, 1000),
    ];
    assert!(copied.iter().all(|data| data.host().is_some()));
    let many: Vec<_> = (0..30).map(|_| output(asking(&region), Place::Response, LARGE as u64)).collect();
    let lent = many.iter().filter(|data| data.host().is_none()).count();
    assert_eq!(lent as u64, ARENA / 4 / LARGE as u64, "no more than a quarter is lent to clients that do not read");
    let ran = run(&*model, 0, vec![asking(&region)]);
    stage.runner().say(Way::Work, &result_in(batch + 1, Place::Response, 1 << 20, LARGE as u64));
    assert_eq!(*stage.runner().ends.lock(), [End::Killed]);
    stage.runner().dies();
    assert!(ran.answer().is_err());
    // Outputs of a runner that has ended can still be sent.
    assert!(many.iter().all(|data| data.to_vec().is_ok_and(|all| all.len() == LARGE)));
}

#[test]
fn only_outputs_that_stay_in_place_need_no_other_thread() {
    const BYTES: u64 = 700_000; // two of them are more than such a thread copies
    let (stage, model) = served();
    let mut batch = 0;
    let mut is_long = |outputs: u16, change: &dyn Fn(&mut backend::BatchEntry)| {
        batch += 1;
        let mut entry = bytes("r", 1);
        entry.request.sends_regions = true;
        change(&mut entry);
        let ran = run(&*model, 0, vec![entry]);
        let result = result_of(batch, outputs, Place::Response, 0, BYTES);
        let (header, body, _) = frames::split(&result).expect("a frame").expect("all of it");
        let reading = Reading { may_copy: false, side_is_read: true };
        let next = stage.runner().receiver().frame(Way::Work, &header, body, reading).expect("a good frame");
        let is_long = matches!(next, Next::Copy);
        if is_long {
            stage.runner().say(Way::Work, &result);
        }
        ran.answer().expect("an answer");
        is_long
    };
    assert!(!is_long(1, &|entry| entry.request.sends_regions = false));
    assert!(is_long(2, &|entry| entry.request.sends_regions = false));
    assert!(!is_long(2, &|_| ()));
    assert!(is_long(2, &|entry| entry.request.default_form.binary = false), "they will be printed");
    // All of them together are more than may be lent.
    assert!(is_long(5, &|_| ()));
    let place = |entry: &mut backend::BatchEntry| {
        let wanted = protocol::RequestedOutput {
            name: "OUT".into(),
            form: entry.request.default_form,
            region: Some(region(BYTES as usize)),
        };
        entry.request.outputs.push(wanted);
        entry.checked.outputs = [(0, Some(0))].into_iter().collect();
    };
    assert!(is_long(2, &place), "they will be copied to memory of the client");
}

#[test]
fn only_a_whole_lent_block_of_numbers_is_no_work_for_a_thread_that_serves_others() {
    let (stage, model) = served();
    let region = lend(&*model, LARGE).expect("room");
    let bytes_of = |datatype, data: Data| {
        let entry = request("r", &[("IN", datatype, data, &[1])]);
        gather::bytes_to_hand_on(&entry.request.inputs[0], model.remote())
    };
    let whole = tensor::part::keeping(region.clone(), "a charge");
    assert_eq!(bytes_of(DataType::Uint8, Data::Region(whole.clone())), 0);
    assert_eq!(bytes_of(DataType::Bytes, Data::Region(whole.clone())), LARGE, "copied to be checked");
    // The tensors of a body with several share its block.
    let part = tensor::part::part(&whole, 0, 1000).expect("inside");
    assert_eq!(bytes_of(DataType::Uint8, Data::Region(part)), 1000);
    assert_eq!(bytes_of(DataType::Uint8, Data::Bytes(vec![0; 10].into())), 10);
    // Memory of another version, or of a process that was replaced, is copied.
    let (_other, other) = served();
    let foreign = lend(&*other, LARGE).expect("room");
    assert_eq!(bytes_of(DataType::Uint8, Data::Region(foreign)), LARGE);
    let ran = run(&*model, 0, vec![asking(&region)]);
    assert_eq!(bytes_of(DataType::Uint8, Data::Region(whole)), LARGE, "its runner has it");
    stage.runner().answers(&[1]);
    ran.answer().expect("an answer");
}

#[test]
fn a_client_that_takes_long_keeps_only_its_own_tensor_of_a_model_that_is_gone() {
    let (stage, model) = served();
    // All of the memory of both segments is in use.
    let full = vec![8; 900_000];
    let all = lend(&*model, full.len()).expect("room");
    all.copy_from(0, &full).expect("inside");
    drop(all);
    let input = lend(&*model, LARGE).expect("room");
    input.copy_from(0, &[5; LARGE]).expect("inside");
    let responses = stage.runner().segments().responses;
    responses.copy_from(0, &vec![6; 1 << 20]).expect("inside");
    let mut entry = bytes("r", 1);
    entry.request.sends_regions = true;
    let ran = run(&*model, 0, vec![entry]);
    stage.runner().say(Way::Work, &result_in(1, Place::Response, 300_032, LARGE as u64));
    let mut answer = ran.answer().expect("an answer");
    let Data::Region(output) = std::mem::take(&mut answer.outputs[0].data) else { panic!("not copied") };
    let requests = stage.runner().segments().requests;
    stage.runner().dies();
    drop(model);
    stage.later.lock().clear();
    let is_all = |data: &RegionRef, byte| Data::Region(data.clone()).to_vec().is_ok_and(|all| all == [byte; LARGE]);
    assert!(is_all(&input, 5) && is_all(&output, 6), "what is lent stays");
    // Blocks of segments lie at multiples of 64 bytes, and memory is given back in pages.
    let kept = |segment: &RegionRef| Data::Region(segment.clone()).to_vec().expect("mapped");
    let kept = |segment| kept(segment).into_iter().filter(|&byte| byte != 0).count();
    assert_eq!((kept(&requests), kept(&responses)), (LARGE, LARGE));
}

#[test]
fn the_memory_grows_for_lent_blocks_up_to_a_quarter_for_a_later_large_request() {
    let (stage, model) = served();
    // Three would be less than a quarter, but each of the first two segments has room for one.
    let held: Vec<_> = std::iter::from_fn(|| lend(&*model, 600_000)).collect();
    assert_eq!(held.len(), 2);
    drop(held);
    // At most 2 of the 8 MiB are taken.
    let ran = run(&*model, 0, vec![bytes("large", 6 << 20)]);
    assert_eq!(sent(&stage).3, 6 << 20);
    stage.runner().say(Way::Work, &result(1, &[1]));
    ran.answer().expect("an answer");
}
