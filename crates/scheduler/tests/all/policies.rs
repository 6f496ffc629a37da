//! Priority levels and queue policies (spec §2), alike in both modes. A schedule has `MS:EVENT`: `+2x3` three requests
//! of two rows, `-1` cancels request 1, `!` an instance becomes idle. Expected is `MS:run[REQUESTS]` and the like.

use crate::common::*;
use scheduler::TimeoutAction::{Delay, Reject};
use scheduler::{Config, Dynamic};

/// Both modes with delay 0; with `max` 1 requests leave one by one.
#[track_caller]
fn check_policy(max: u32, change: impl Fn(&mut Dynamic), schedule: &str, expected: &str) {
    check(&with(dynamic(max, &[], 0), &change), schedule, expected);
    check(&with(strict(max, &[], 0), &change), schedule, expected);
}

#[test]
fn s05_s07_with_one_busy_instance_exactly_max_queue_size_more_are_accepted() {
    let limit = |n| move |d: &mut Dynamic| d.default_policy.max_queue_size = n;
    // Golden q_size: the first runs, the second waits, the third is rejected.
    check_policy(1, limit(1), "0:+1 250:+1 500:+1 1200:!", "0:run[0]. 500:full[2] 1200:run[1]");
    check_policy(8, limit(3), "0:+1 1:+1x4 2:! 3:+1", "0:run[0]. 1:full[4] 2:run[1,2,3]");
    check_policy(1, limit(0), "0:+1 1:+1x1000 2:!", "0:run[0]. 2:run[1]");
    // A cancelled request makes room.
    check_policy(1, limit(1), "0:+1 1:+1 2:-1 3:+1 4:!", "0:run[0]. 2:cancelled[1] 4:run[2]");
}

#[test]
fn s06_s08_requests_are_rejected_at_the_deadline_while_instances_are_busy() {
    let reject = |d: &mut Dynamic| d.default_policy = policy(Reject, 100, false, 0);
    check_policy(
        1,
        reject,
        "0:+1 20:+1 30:+1 500:!",
        "0:run[0]. 20:sleep 120 120:expired[1] 120:sleep 130 130:expired[2]",
    );
    check_policy(1, reject, "0:+1 20:+1 119:!", "0:run[0]. 20:sleep 120 119:run[1]");
    // A running request never expires.
    check_policy(1, reject, "0:+1 900:!", "0:run[0].");
    // Without override the parameter is ignored.
    check_policy(1, reject, "0:+1 20:+1t5 500:!", "0:run[0]. 20:sleep 120 120:expired[1]");
}

#[test]
fn s06_s42_an_override_can_only_shorten_and_needs_a_default() {
    let own = |default| move |d: &mut Dynamic| d.default_policy = policy(Reject, default, true, 0);
    check_policy(1, own(100), "0:+1 20:+1t50 500:!", "0:run[0]. 20:sleep 70 70:expired[1]");
    check_policy(1, own(100), "0:+1 20:+1t5000 500:!", "0:run[0]. 20:sleep 120 120:expired[1]");
    check_policy(1, own(100), "0:+1 20:+1t0 500:!", "0:run[0]. 20:sleep 120 120:expired[1]");
    check_policy(1, own(0), "0:+1 20:+1t50 500:!", "0:run[0]. 500:run[1]");
    // A later request may expire before an earlier one, from the middle of the queue.
    check_policy(
        1,
        own(100),
        "0:+1 20:+1 21:+1t10 22:+1 90:! 500:?",
        "0:run[0]. 20:sleep 120 21:sleep 31 31:expired[2] 31:sleep 120 90:run[1] 120:sleep 122 122:expired[3]",
    );
}

#[test]
fn s06_delayed_requests_wait_behind_unexpired_ones_and_never_expire_again() {
    let delay = |d: &mut Dynamic| d.default_policy = policy(Delay, 100, false, 0);
    check_policy(
        1,
        delay,
        "0:+1 10:+1 20:+1 115:+1 119:! 121:! 122:! 900:?",
        "0:run[0]. 10:sleep 110 110:sleep 120 119:run[2] 119:sleep 215 121:run[3] 122:run[1]",
    );
    // Golden q_delay: all three run, one by one.
    check_policy(
        1,
        delay,
        "0:+1 150:+1 300:+1 500:! 1000:!",
        "0:run[0]. 150:sleep 250 300:sleep 400 500:run[1] 1000:run[2]",
    );
    // Delayed requests count for max_queue_size.
    let limited = |d: &mut Dynamic| d.default_policy = policy(Delay, 100, false, 2);
    check_policy(1, limited, "0:+1 1:+1 2:+1 300:+1", "0:run[0]. 1:sleep 101 101:sleep 102 300:full[3]");
    // Delayed requests keep their order and share a batch with unexpired ones.
    check_policy(
        8,
        delay,
        "0:+1 1:+1 2:+1 150:+1 151:!",
        "0:run[0]. 1:sleep 101 101:sleep 102 150:sleep 250 151:run[3,1,2]",
    );
}

fn three_levels(d: &mut Dynamic) {
    d.priority_levels = 3;
    d.default_priority_level = 2;
}

#[test]
fn s04_higher_levels_first_and_unknown_ones_are_the_default() {
    check_policy(1, three_levels, "0:+1 1:+1p3 2:+1p1 3:! 4:!", "0:run[0]. 3:run[2] 4:run[1]");
    check_policy(
        1,
        three_levels,
        "0:+1 1:+1p3 2:+1p9 3:+1p0 4:+1p2 5:! 6:! 7:! 8:!",
        "0:run[0]. 5:run[2] 6:run[3] 7:run[4] 8:run[1]",
    );
    check_policy(8, three_levels, "0:+1 1:+1p3 2:+1p2 3:+1p1 5:!", "0:run[0]. 5:run[3,2,1]");
    // Without levels the parameter is ignored.
    check_policy(1, |_| (), "0:+1 1:+1p3 2:+1p1 3:!", "0:run[0]. 3:run[1]");
}

#[test]
fn s04_every_level_has_its_own_policy_and_capacity() {
    // Golden q_prio: level 3 has room for one.
    let own = |d: &mut Dynamic| {
        three_levels(d);
        d.level_policies.insert(3, policy(Reject, 0, false, 1));
        d.level_policies.insert(1, policy(Reject, 50, false, 0));
    };
    check_policy(1, own, "0:+1 100:+1p3 200:+1p3 300:+1p2 400:!", "0:run[0]. 200:full[2] 400:run[3]");
    check_policy(1, own, "0:+1 100:+1p1 110:+1p2 300:!", "0:run[0]. 100:sleep 150 150:expired[1] 300:run[2]");
}

#[test]
fn s06_delayed_requests_run_before_lower_levels() {
    let delay = |d: &mut Dynamic| {
        three_levels(d);
        d.default_policy = policy(Delay, 100, false, 0);
    };
    check_policy(
        1,
        delay,
        "0:+1 1:+1p1 50:+1p2 60:+1p1 110:! 111:! 112:!",
        "0:run[0]. 1:sleep 101 101:sleep 150 110:run[3] 111:run[1] 112:run[2]",
    );
}

#[test]
fn s09_a_higher_priority_arrival_restarts_formation_from_the_head() {
    let config = with(strict(4, &[], 100), three_levels);
    check(&config, "0:+3p2 50:+2p1 200:?", "0:sleep 100 50:run[1]next");
    check(&config, "0:+1p2 50:+2p1 60:+1p3 200:?", "0:sleep 100 60:run[1,0,2]full");
}

#[test]
fn s09_the_delay_timer_also_heeds_the_nearest_deadline() {
    let config = with(strict(4, &[], 100), |d| d.default_policy = policy(Reject, 40, false, 0));
    check(&config, "0:+1 200:?", "0:sleep 40 40:expired[0]");
}

#[test]
fn s04_the_number_of_levels_costs_nothing() {
    let config = with(dynamic(1, &[], 0), |d| {
        d.priority_levels = u32::MAX;
        d.default_priority_level = 7;
    });
    let mut player = Player::new(Config { instances: 1, ..config });
    for level in (1..2000u64).rev() {
        player.play(&format!("{0}:+1p{level} {0}:!", 2000 - level));
    }
    assert!(player.scheduler.is_empty());
    player.idle = 0;
    assert_eq!(player.play("5000:+1p4294967295 5001:+1p4294967296 5002:! 5003:!"), "5002:run[2000] 5003:run[1999]");
}
