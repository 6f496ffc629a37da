//! Default scheduler and dynamic batcher without policies: which requests run together, and when.

use crate::common::*;
use scheduler::Config;

#[test]
fn s01_default_scheduler_runs_every_request_alone_in_order() {
    check(&default_scheduler(8), "0:+1x3 5:! 6:!", "0:run[0]. 5:run[1] 6:run[2]");
    check(&Config { instances: 2, ..default_scheduler(8) }, "0:+4x3 5:!", "0:run[0]. 0:run[1]. 5:run[2]");
    check(&default_scheduler(8), "0:+1p1 1:+1p9t1 9:!", "0:run[0]. 9:run[1]"); // priority and timeout are ignored
}

#[test]
fn s41_a_cancelled_request_does_not_run() {
    check(&default_scheduler(0), "0:+1x3 1:~1 5:!", "0:run[0]. 5:cancelled[1] 5:run[2]");
    check(&default_scheduler(0), "0:+1x3 1:-1 5:!", "0:run[0]. 1:cancelled[1] 5:run[2]");
    // The rows of the cancelled request do not count: the others fill the batch.
    check(&dynamic(4, &[], 0), "0:+4 1:+2x3 2:~2 5:!", "0:run[0]. 5:cancelled[2] 5:run[1,3]");
    check(&dynamic(4, &[], 0), "0:+4 1:+2 2:~1 5:!", "0:run[0]. 5:cancelled[1]");
    for (config, expected) in [
        (strict(4, &[], 9), "0:run[0]full 1:sleep 10 3:cancelled[1] 3:sleep 11 50:run[2]"),
        (strict(4, &[], 0), "0:run[0]. 3:cancelled[1] 50:run[2]"),
    ] {
        check(&config, "0:+4 1:+1 2:+1 3:-1 50:!", expected);
    }
}

/// The same in both modes: nothing here depends on a delay.
#[track_caller]
fn check_both(max: u32, preferred: &[u32], schedule: &str, expected: &str) {
    check(&dynamic(max, preferred, 0), schedule, expected);
    check(&strict(max, preferred, 0), schedule, expected);
}

#[test]
fn s10_without_delay_requests_only_gather_while_instances_are_busy() {
    check_both(8, &[], "0:+1 1:! 1:+1 2:!", "0:run[0]. 1:run[1].");
    check_both(8, &[], "0:+1 1:+1 2:+1 3:+1 9:!", "0:run[0]. 9:run[1,2,3]");
    check_both(4, &[], "0:+1 1:+1x9 2:! 3:! 4:!", "0:run[0]. 2:run[1,2,3,4] 3:run[5,6,7,8] 4:run[9]");
    let two = |c: Config| Config { instances: 2, ..c };
    check(&two(dynamic(8, &[], 0)), "0:+1 1:+1 2:+1 3:+1 9:!", "0:run[0]. 1:run[1]. 9:run[2,3]");
    check(&two(strict(8, &[], 0)), "0:+1 1:+1 2:+1 3:+1 9:!", "0:run[0]. 1:run[1]. 9:run[2,3]");
}

#[test]
fn s11_a_preferred_size_is_preferred_over_a_larger_one() {
    check_both(8, &[4], "0:+1x5 5:!", "0:run[0,1,2,3]. 5:run[4]");
    check_both(8, &[4, 8], "0:+1x9 5:!", "0:run[0,1,2,3,4,5,6,7]. 5:run[8]");
    check_both(8, &[8, 4], "0:+1x7 5:!", "0:run[0,1,2,3]. 5:run[4,5,6]");
    check_both(8, &[4], "0:+1x3", "0:run[0,1,2]."); // no preferred size reached: everything queued
    check_both(8, &[4], "0:+3 1:+3x2 5:! 6:!", "0:run[0]. 5:run[1] 6:run[2]"); // stays under the largest preferred
}

#[test]
fn s10_strict_closes_a_payload_at_the_first_preferred_size_it_grows_to() {
    // Single arrivals extend an open payload, which is closed at 2, unlike four requests found at once.
    check(&strict(8, &[2, 4], 0), "0:+1 1:+1 2:+1 3:+1 4:+1 9:! 10:!", "0:run[0]. 9:run[1,2] 10:run[3,4]");
    check(&dynamic(8, &[2, 4], 0), "0:+1 1:+1 2:+1 3:+1 4:+1 9:! 10:!", "0:run[0]. 9:run[1,2,3,4]");
    // Two payloads per instance are formed ahead; the other requests gather in the queue (S-07).
    check(
        &strict(8, &[2], 0),
        "0:+1 1:+1 2:+1 3:+1 4:+1 5:+1 6:+1 9:! 10:! 11:!",
        "0:run[0]. 9:run[1,2] 10:run[3,4] 11:run[5,6]",
    );
}

#[test]
fn s09_requests_are_never_split_and_never_exceed_the_maximum() {
    check_both(8, &[], "0:+1 1:+5 2:+5 3:+3 9:! 10:!", "0:run[0]. 9:run[1] 10:run[2,3]");
    check_both(8, &[4], "0:+1 1:+8 2:+1 9:! 10:!", "0:run[0]. 9:run[1] 10:run[2]"); // larger than any preferred: alone
    check_both(0, &[], "0:+1x3 5:! 6:!", "0:run[0]. 5:run[1] 6:run[2]");
    check_both(8, &[], "0:+100 1:+1 5:!", "0:run[0]. 5:run[1]"); // the scheduler does not reject it
}

#[test]
fn s12_a_request_of_another_shape_ends_the_batch_and_is_not_overtaken() {
    check_both(8, &[], "0:+1 1:+1ax2 2:+1b 3:+1a 9:! 10:! 11:!", "0:run[0]. 9:run[1,2] 10:run[3] 11:run[4]");
    check_both(8, &[2], "0:+1 1:+1a 2:+1b 3:+1bx2 9:! 10:! 11:!", "0:run[0]. 9:run[1] 10:run[2,3] 11:run[4]");
}

#[test]
fn s15_a_batch_waits_until_it_is_decided_what_joins_it() {
    let schedule = "0:+1 1:+1x2 2:+1u 3:+1 9:! 11:=3 12:!";
    check(&dynamic(8, &[], 0), schedule, "0:run[0]. 11:run[1,2,3,4]library");
    // A payload that is prefetched is taken as it is.
    check(&strict(8, &[], 0), schedule, "0:run[0]. 9:run[1,2] 12:run[3,4]");
    check_both(8, &[], "0:+1 1:+1 2:+1u 3:=2 9:!", "0:run[0]. 9:run[1,2]");
    // The first one of a batch needs no decision.
    check_both(8, &[], "0:+1u", "0:run[0].");
    let delayed = strict(8, &[], 100);
    check(&delayed, "0:+1 10:+1u 20:=1 30:+1u 200:=2", "0:sleep 100 20:sleep 100 200:run[0,1,2]delay");
    // One that begins another batch ends the wait, here by its shape.
    check(&delayed, "0:+1a 10:+1bu 20:=1", "0:sleep 100 20:run[0]next 20:sleep 110");
    // A full batch does not wait for the one behind it.
    check_both(2, &[], "0:+1 1:+1x2 2:+1u 9:!", "0:run[0]. 9:run[1,2]");
    check(&strict(8, &[2], 0), "0:+1 1:+1 2:+1u 3:+1 4:=2 9:! 10:!", "0:run[0]. 9:run[1,2] 10:run[3]");
}

#[test]
fn s11_strict_waits_for_the_delay_and_then_sends_what_fits() {
    let p4 = strict(8, &[4], 100);
    check(&p4, "0:+1 200:?", "0:sleep 100 100:run[0]delay");
    check(&p4, "0:+1 50:+1 200:?", "0:sleep 100 100:run[0,1]delay");
    check(&p4, "0:+3 50:+1 200:?", "0:sleep 100 50:run[0,1]preferred"); // preferred size reached: at once
    check(&p4, "0:+1x5 200:! 200:?", "0:run[0,1,2,3]preferred 0:sleep 100 200:run[4]");
    check(&strict(8, &[], 100), "0:+8", "0:run[0]full");
    // With a request of another shape behind it, a wait cannot add anything.
    check(&p4, "0:+1a 10:+1b 200:! 200:?", "0:sleep 100 10:run[0]next 10:sleep 110 200:run[1]");
    // The delay counts from the oldest request's own arrival.
    check(&p4, "0:+1 90:! 100:! 150:+1 300:?", "0:sleep 100 100:run[0]delay 150:sleep 250 250:run[1]delay");
}

#[test]
fn s11_after_the_delay_everything_that_fits_goes_even_past_a_preferred_size() {
    // With a policy no payload is formed for a busy instance, so the requests are still in the queue after the delay.
    let limited = |c| with(c, |d| d.default_policy.max_queue_size = 100);
    for config in [limited(strict(8, &[4], 100)), dynamic(8, &[4], 100), limited(dynamic(8, &[4], 100))] {
        let mut player = Player::new(config);
        player.idle = 0;
        assert_eq!(player.play("0:+1x6 50:!"), "50:run[0,1,2,3]", "not exceeded");
        assert_eq!(player.play("100:!"), "100:run[4,5]", "exceeded: all that is there");
        assert_eq!(player.play("200:+1x10 300:!"), "300:run[6,7,8,9,10,11,12,13]", "exceeded: past 4, up to 8");
    }
}

#[test]
fn s09_strict_appends_to_a_payload_that_has_no_preferred_size() {
    // 100: the delay of 1 is over and its payload is open; later requests join at once (rule 5) up to 4 rows.
    check(
        &strict(8, &[4], 100),
        "0:+4 0:+1 110:+1 120:+1 130:+1 140:+1 150:!",
        "0:run[0]preferred 0:sleep 100 140:sleep 240 150:run[1,2,3,4]",
    );
}

#[test]
fn s09_golden_dyn_in_strict_mode() {
    // Recorded from Triton: max 8, preferred 4, delay 2 s. 3 rows and 1 row 50 ms apart make one execution of 4.
    let dyn_ = strict(8, &[4], 2_000_000);
    check(&dyn_, "0:+1 1:+1 2:+1 3:+1", "0:sleep 2000000 3:run[0,1,2,3]preferred");
    check(&dyn_, "0:+3 50000:+1", "0:sleep 2000000 50000:run[0,1]preferred");
    check(&dyn_, "0:+1 50000:+2 2000000:?", "0:sleep 2000000 2000000:run[0,1]delay");
    check(&dyn_, "0:+8", "0:run[0]full");
    check(
        &dyn_,
        "0:+1a 100000:+1b 100001:! 200000:+3b",
        "0:sleep 2000000 100000:run[0]next 100000:sleep 2100000 200000:run[1,2]preferred",
    );
}

#[test]
fn s47_nothing_runs_until_enough_requests_are_queued_once() {
    for config in [dynamic(8, &[], 0), strict(8, &[], 0)] {
        let config = Config { delay_scheduler: 4, ..config };
        check(&config, "0:+1 1:+1 2:+1 50:? 60:+1 70:! 71:+1", "60:run[0,1,2,3]gathered 71:run[4].");
    }
    let default = Config { delay_scheduler: 4, ..default_scheduler(8) };
    check(&default, "0:+1", "0:run[0]."); // the option only affects the dynamic batcher
}

#[test]
fn an_idle_instance_does_not_wait_for_the_delay_without_evidence() {
    check(&dynamic(8, &[4], 2_000_000), "0:+1 5:+1 9:!", "0:run[0]wait 9:run[1]");
}

#[test]
fn draining_returns_everything() {
    for config in [dynamic(8, &[2], 0), strict(8, &[2], 0), default_scheduler(8)] {
        let mut player = Player::new(config);
        player.idle = 0;
        player.play("0:+1 1:+1 2:+1 3:+1 4:+1 5:+1 6:+1");
        assert_eq!(player.scheduler.len(), 7);
        let mut out = vec![];
        player.scheduler.drain_all(&mut out);
        assert_eq!(out.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        assert!(player.scheduler.is_empty());
    }
}

#[test]
fn a_time_before_the_latest_counts_as_the_latest() {
    check(&strict(8, &[4], 100), "500:+1 400:+1 700:?", "500:sleep 600 600:run[0,1]delay");
}

/// Plays a schedule after a run of each of these sizes has taken `us` per row.
#[track_caller]
fn check_ahead(config: &Config, us: u64, schedule: &str, expected: &str) {
    let mut player = Player::new(config.clone());
    for rows in 1..=8 {
        (0..3).for_each(|_| player.scheduler.observe('a' as u64, rows, us * 1000 * u64::from(rows)));
    }
    assert_eq!(player.play(schedule), expected, "schedule {schedule}");
}

#[test]
fn a_batch_is_prefetched_only_if_it_would_not_grow_in_the_queue() {
    let config = dynamic(64, &[], 0);
    // More wait than before: others may follow. When they stop coming, all wait.
    let grows = "0:+1 1:+1 1:>1 2:+1 2:>1 3:+1 3:>1";
    check_ahead(&config, 10, grows, "0:run[0]. 1:ahead[] 2:ahead[] 3:ahead[]");
    // Half of the requests: the other half gets its responses meanwhile.
    let all = "0:+1 1:+1x5 1:>1 2:>1 3:>3 4:! 5:+1 5:>3 6:+1 6:>3";
    let expected = "0:run[0]. 1:ahead[] 2:ahead[1,2,3] 3:ahead[] 4:run[4,5] 5:ahead[] 6:ahead[]";
    check_ahead(&config, 10, all, expected);
    // Full batches do not grow.
    check_ahead(&dynamic(4, &[], 0), 10, "0:+1 1:+1x4 1:>1 2:>4", "0:run[0]. 1:ahead[1,2,3,4] 2:ahead[]");
    check_ahead(
        &dynamic(4, &[], 0),
        10,
        "0:+1 1:+1x3 1:~1 2:>1 3:>1",
        "0:run[0]. 2:ahead[] 3:cancelled[1] 3:ahead[2,3]",
    );
    // Sizes that the user chose are kept.
    check_ahead(&dynamic(8, &[4], 0), 10, "0:+1 1:+1x5 1:>1 2:>1", "0:run[0]. 1:ahead[] 2:ahead[1,2,3,4]");
}

#[test]
fn no_batch_lies_ready_if_it_is_long_or_its_requests_have_to_stay_in_the_queue() {
    let (schedule, none) = ("0:+1 1:+1x5 1:>1 2:>1", "0:run[0]. 1:ahead[] 2:ahead[]");
    check_ahead(&dynamic(8, &[], 0), 10, schedule, "0:run[0]. 1:ahead[] 2:ahead[1,2,3]");
    check_ahead(&dynamic(8, &[], 0), 400, schedule, none);
    check_ahead(&dynamic(8, &[], 1), 10, schedule, "0:run[0]wait 1:ahead[] 2:ahead[]");
    check_ahead(&strict(8, &[], 0), 10, schedule, none);
    check_ahead(&default_scheduler(8), 10, schedule, none);
    let limited = with(dynamic(8, &[], 0), |d| d.default_policy.max_queue_size = 9);
    check_ahead(&limited, 10, schedule, none);
    // The duration is not known yet.
    check(&dynamic(8, &[], 0), schedule, none);
}
