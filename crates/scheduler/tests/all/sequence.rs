//! Sequences, rule by rule (spec §5). A schedule is one line, as in `common`; the words are other ones:
//!
//! `+7` a request of sequence 7 arrives, `+7<` with START, `+7>` with END, `+x` of the sequence "x", `+_` of none;
//! suffixes: `/t5` timeout 5 µs, `/s2` shape 2, `/r2` 2 rows. `-2` request 2 is cancelled and removed, `~2` it is
//! cancelled without a call. `!0` instance 0 finishes and its requests are over, `^0` it finishes but they are not,
//! `.0` they are over, `@0` it finishes and wants them again. `?` just a step, `S` stop, `D` drain.
//!
//! The trace: `10:run0[3<,_,4]` instance 0 runs request 3, with START, in slot 0, nothing in slot 1, and 4 in slot 2.

use crate::common::{self, Request, mark};
use options::SEQUENCES_MAX_DEFAULT;
use scheduler::sequence::{
    Config, Head, NextRun, Origin, RemovalReason, SequenceError, SequenceId, SequenceScheduler, SlotId, Strategy,
    conflict_warning,
};
use tensor::{Code, Name};

fn config(strategy: Strategy, max: u32) -> Config {
    Config {
        max_batch_size: max,
        instances: 1,
        strategy,
        idle_us: u64::MAX,
        iterative: false,
        sequences_max: SEQUENCES_MAX_DEFAULT,
        strict_delay: false,
        delay_scheduler: 0,
        backlog_delay_scheduler: 0,
    }
}

fn direct(max: u32) -> Config {
    config(Strategy::Direct { max_queue_delay_us: 0, minimum_slot_utilization: 0.0 }, max)
}

fn delayed(max: u32, max_queue_delay_us: u64, minimum_slot_utilization: f32) -> Config {
    config(Strategy::Direct { max_queue_delay_us, minimum_slot_utilization }, max)
}

fn oldest(max: u32, max_candidate_sequences: u32) -> Config {
    config(Strategy::Oldest { max_candidate_sequences, preferred: vec![], max_queue_delay_us: 0 }, max)
}

/// Both strategies, with one sequence at a time.
fn single() -> [Config; 2] {
    [direct(1), oldest(1, 1)]
}

fn id(text: &str) -> SequenceId {
    match text.parse() {
        Ok(number) => SequenceId::Number(number),
        Err(_) => SequenceId::Text(Name::from(if text == "_" { "" } else { text })),
    }
}

struct Player {
    scheduler: SequenceScheduler<Request>,
    idle: Vec<u32>,
    requests: Vec<Request>,
    /// Requests that run, by instance.
    running: Vec<Vec<(Request, Origin)>>,
    trace: Vec<String>,
    wake: Option<u64>,
}

impl Player {
    fn new(config: Config) -> Self {
        let instances = config.instances;
        Self {
            scheduler: SequenceScheduler::new(config),
            idle: (0..instances).collect(),
            requests: vec![],
            running: (0..instances).map(|_| vec![]).collect(),
            trace: vec![],
            wake: None,
        }
    }

    fn note(&mut self, now: u64, what: String) {
        self.trace.push(format!("{}:{what}", now / 1000));
    }

    fn play(&mut self, schedule: &str) -> String {
        for event in schedule.split_whitespace() {
            let (time, what) = event.split_once(':').expect("time:what");
            let now = time.parse::<u64>().expect("time") * 1000;
            while let Some(wake) = self.wake.filter(|w| *w <= now) {
                self.look(wake);
            }
            let (what, of) = what.split_at(1);
            let mut removed = vec![];
            match what {
                "+" => self.arrive(now, of),
                "-" | "~" => {
                    self.requests[of.parse::<usize>().unwrap()].cancelled.set(true);
                    if what == "-" {
                        self.scheduler.remove_cancelled(now, &mut removed);
                    }
                }
                "!" | "." | "^" | "@" => {
                    let instance = of.parse::<usize>().unwrap();
                    let over = if what == "^" { vec![] } else { std::mem::take(&mut self.running[instance]) };
                    for (request, origin) in over {
                        match what {
                            "@" => {
                                let number = request.id;
                                if let Err((why, _)) = self.scheduler.again(now, origin, request) {
                                    self.note(now, format!("refused[{number}] {why:?}"));
                                }
                            }
                            _ => self.scheduler.released(now, origin),
                        }
                    }
                    if what != "." {
                        self.idle.push(instance as u32);
                        self.idle.sort_unstable();
                    }
                }
                "?" => {}
                "S" => self.scheduler.stop(),
                "D" => {
                    let mut out = vec![];
                    self.scheduler.drain(&mut out);
                    let numbers: Vec<_> = out.iter().map(|r| r.id.to_string()).collect();
                    self.note(now, format!("drained[{}]", numbers.join(",")));
                    assert_eq!((self.scheduler.len(), self.scheduler.alive(), self.scheduler.backlog()), (0, 0, 0));
                }
                _ => panic!("unknown event {event}"),
            }
            self.note_removed(now, removed);
            self.look(now);
        }
        std::mem::take(&mut self.trace).join(" ")
    }

    fn arrive(&mut self, now: u64, spec: &str) {
        let mut parts = spec.split('/');
        let name = parts.next().unwrap();
        let (start, end) = (name.contains('<'), name.contains('>'));
        let mut head = Head { id: id(name.trim_end_matches(['<', '>'])), start, end, timeout_us: 0 };
        let number = self.requests.len();
        let mut request = common::request(number, 1, 0);
        for part in parts {
            let value = part[1..].parse::<u64>().unwrap();
            match &part[..1] {
                "t" => head.timeout_us = value,
                "s" => request.shape = value,
                _ => request.rows = value as u32,
            }
        }
        self.requests.push(request.clone());
        match self.scheduler.push(now, head, request) {
            Ok(accepted) if accepted.conflict => self.note(now, format!("conflict[{number}]")),
            Ok(_) => {}
            Err((why, back)) => {
                assert_eq!(back.id, number);
                self.note(now, format!("refused[{number}] {why:?}"));
            }
        }
    }

    fn look(&mut self, now: u64) {
        loop {
            let mut removed = vec![];
            let step = self.scheduler.step(now, &self.idle, &mut removed);
            self.note_removed(now, removed);
            match step {
                NextRun::Run(run) => {
                    assert!(self.idle.contains(&run.instance), "an idle instance");
                    self.idle.retain(|i| *i != run.instance);
                    let mut rows = vec![];
                    for row in run.rows {
                        rows.push(row.request.as_ref().map_or("_".into(), |r| {
                            let flags = format!("{}{}", if r.start { "<" } else { "" }, if r.end { ">" } else { "" });
                            format!("{}{flags}", r.item.id)
                        }));
                        if let Some(r) = row.request {
                            self.running[run.instance as usize].push((r.item, r.origin));
                        }
                    }
                    self.note(now, format!("run{}[{}]{}", run.instance, rows.join(","), mark(run.why)));
                }
                NextRun::SleepUntil(at) => {
                    assert!(at > now, "sleep until {at} at {now}");
                    if self.wake != Some(at) {
                        self.note(now, format!("sleep {}", at / 1000));
                    }
                    self.wake = Some(at);
                    return;
                }
                NextRun::Idle => {
                    self.wake = None;
                    return;
                }
            }
        }
    }

    fn note_removed(&mut self, now: u64, removed: Vec<(RemovalReason, Request)>) {
        for (why, request) in removed {
            let why = if why == RemovalReason::Expired { "expired" } else { "cancelled" };
            self.note(now, format!("{why}[{}]", request.id));
        }
    }
}

#[track_caller]
fn check(config: &Config, schedule: &str, expected: &str) {
    assert_eq!(Player::new(config.clone()).play(schedule), expected, "schedule {schedule}");
}

#[test]
fn s17_sequence_requests_are_checked() {
    for config in single() {
        // Golden seq_d4.nostart, .endonly, .zero, .a.*, .batch2.
        check(&config, "0:+50", "0:refused[0] NotStarted(Number(50))");
        check(&config, "0:+50>", "0:refused[0] NotStarted(Number(50))");
        check(&config, "0:+0< 1:+_<", "0:refused[0] NoId 1:refused[1] NoId");
        check(&config, "0:+50<>/r2", "0:refused[0] BatchSize");
        // The order of the checks matters.
        check(
            &config,
            "0:S 1:+0</r2 2:+0< 3:+1< 4:+1",
            "1:refused[0] BatchSize 2:refused[1] NoId 3:refused[2] Stopping 4:refused[3] NotStarted(Number(1))",
        );
        check(&config, "0:+5<> 1:!0 2:+5 3:+5<>", "0:run0[0<>]. 2:refused[1] NotStarted(Number(5)) 3:run0[2<>].");
        // Numbers and texts never equal each other.
        check(
            &config,
            "0:+5< 1:!0 2:+x 3:+5 4:!0 5:+5>",
            "0:run0[0<]. 2:refused[1] NotStarted(Text(\"x\")) 3:run0[2]. 5:run0[3>].",
        );
    }
    let mut player = Player::new(direct(2));
    let text = |start| Head { id: SequenceId::Text(Name::from("5")), start, end: false, timeout_us: 0 };
    assert_eq!(player.play("0:+5< 1:!0"), "0:run0[0<].");
    let request = |number| common::request(number, 1, 0);
    let refusal = player.scheduler.push(2000, text(false), request(1)).map_err(|(why, _)| why);
    assert_eq!(refusal, Err(SequenceError::NotStarted(SequenceId::Text(Name::from("5")))));
    assert!(player.scheduler.push(2000, text(true), request(1)).is_ok());
    assert_eq!(player.scheduler.alive(), 2);
}

#[test]
fn s17_a_start_in_the_middle_ends_the_former_sequence_early() {
    for config in single() {
        // Golden seq_d4.a.restart, .more, .restart.end, .gone.
        check(
            &config,
            "0:+1< 1:!0 2:+1< 3:!0 4:+1 5:!0 6:+1<> 7:!0 8:+1",
            "0:run0[0<]. 2:conflict[1] 2:run0[1<]. 4:run0[2]. 6:conflict[3] 6:run0[3<>]. \
             8:refused[4] NotStarted(Number(1))",
        );
        // The sequence waits behind earlier ones.
        check(
            &config,
            "0:+1< 1:+1 2:+1< 3:+1> 4:!0 5:!0 6:!0 7:!0 8:+1",
            "0:run0[0<]. 2:conflict[2] 4:run0[1] 5:run0[2<] 6:run0[3>] 8:refused[4] NotStarted(Number(1))",
        );
    }
}

#[test]
fn s18_instances_fill_evenly_from_their_lowest_slots() {
    for config in [direct(2), oldest(2, 2)] {
        let config = Config { instances: 2, ..config };
        let mut player = Player::new(config.clone());
        let null = if matches!(config.strategy, Strategy::Direct { .. }) { "_," } else { "" };
        assert_eq!(
            player.play("0:+1< 0:+2< 0:+3< 0:+4< 1:!0 2:!1 3:!0 3:!1 4:+2> 5:!1 6:+9<"),
            format!("0:run0[0<]. 0:run1[1<]. 1:run0[{null}2<] 2:run1[{null}3<] 4:run1[4>]. 6:run1[5<].")
        );
        assert_eq!((player.scheduler.alive(), player.scheduler.backlog(), player.scheduler.len()), (4, 0, 0));
    }
}

#[test]
fn s18_sequences_without_a_slot_wait_in_order() {
    for config in single() {
        // Golden backlog.d1, backlog.o1, backlog.more.
        check(
            &config,
            "0:+1< 1:!0 2:+2<> 3:+3< 4:+3 5:+1> 6:!0 7:!0 8:!0",
            "0:run0[0<]. 5:run0[4>]. 6:run0[1<>] 7:run0[2<] 8:run0[3]",
        );
        check(&config, "0:+1< 1:+2< 2:+3", "0:run0[0<]. 2:refused[2] NotStarted(Number(3))");
        // Golden backlog.restart.
        check(
            &config,
            "0:+1< 1:+2< 2:+2< 3:+2> 4:+1> 5:!0 6:!0 7:!0 8:!0",
            "0:run0[0<]. 2:conflict[2] 5:run0[4>] 6:run0[1<] 7:run0[2<] 8:run0[3>]",
        );
        // The id is forgotten when its END is accepted, in a slot and in the backlog.
        check(
            &config,
            "0:+1< 1:+1> 2:+1 3:+1<> 4:+1 5:!0 6:!0",
            "0:run0[0<]. 2:refused[2] NotStarted(Number(1)) 4:refused[4] NotStarted(Number(1)) 5:run0[1>] 6:run0[3<>]",
        );
    }
}

#[test]
fn s18_idle_sequences_are_forgotten() {
    for config in single() {
        let config = Config { idle_us: 100, ..config };
        check(
            &config,
            "0:+1< 1:!0 50:+1 60:!0 140:+1 150:!0 260:+1 270:+1<",
            "0:run0[0<]. 0:sleep 100 50:run0[1]. 100:sleep 150 140:run0[2]. 150:sleep 240 \
             260:refused[3] NotStarted(Number(1)) 270:run0[4<]. 270:sleep 370",
        );
        // Idle time counts from the last arrival. Queued requests still run, then the slot is free.
        check(
            &config,
            "0:+1< 10:+1 120:+1 130:+2< 150:!0 160:!0",
            "0:run0[0<]. 0:sleep 100 100:sleep 110 120:refused[2] NotStarted(Number(1)) 150:run0[1] \
             150:sleep 250 160:run0[3<]",
        );
        // Idle time does not pass in the backlog, and begins again with the slot.
        check(
            &config,
            "0:+1< 1:+2< 90:+1 180:+1> 181:!0 182:!0 183:!0 184:!0 250:+2",
            "0:run0[0<]. 0:sleep 100 100:sleep 190 181:run0[2] 182:run0[3>] 182:sleep 282 183:run0[1<] 250:run0[4].",
        );
    }
}

#[test]
fn s18_idle_time_counts_without_steps() {
    let head = |n: u64, start, timeout_us| Head { id: SequenceId::Number(n), start, end: false, timeout_us };
    let request = |number| common::request(number, 1, 0);
    let mut removed = vec![];
    for config in single() {
        let mut s = SequenceScheduler::new(Config { idle_us: 100, ..config });
        assert!(s.push(0, head(1, true, 0), request(0)).is_ok());
        assert!(matches!(s.step(0, &[0], &mut removed), NextRun::Run(_)));
        assert!(s.push(10_000, head(2, true, 50), request(1)).is_ok());
        assert!(s.push(60_000, head(2, false, 0), request(2)).is_err(), "it has expired");
        assert!(s.push(100_000, head(1, false, 0), request(3)).is_err(), "it is idle");
        assert!(matches!(s.step(100_000, &[], &mut removed), NextRun::Idle));
        assert!(matches!(removed[..], [(RemovalReason::Expired, Request { id: 1, .. })]));
        assert_eq!((s.alive(), s.len()), (0, 0));
        removed.clear();
    }
}

#[test]
fn s19_the_first_timeout_of_its_requests_ends_a_waiting_sequence() {
    for config in single() {
        // Golden backlog.timeout, .timeout.late, .notimeout.
        check(
            &config,
            "0:+1< 10:+2</t250 20:+2> 600:+2 601:+1> 700:!0",
            "0:run0[0<]. 10:sleep 260 260:expired[1] 260:expired[2] 600:refused[3] NotStarted(Number(2)) 700:run0[4>]",
        );
        check(&config, "0:+1< 10:+2< 20:+2>/t200 300:?", "0:run0[0<]. 20:sleep 220 220:expired[1] 220:expired[2]");
        check(&config, "0:+1<>/t1 100:?", "0:run0[0<>].");
        // The timeout has no effect in a slot.
        check(&config, "0:+1< 1:+1/t5 100:!0", "0:run0[0<]. 100:run0[1]");
        check(&config, "0:+1<> 1:+2</t50 2:!0 100:+2 101:!0", "0:run0[0<>]. 2:run0[1<] 101:run0[2]");
    }
}

#[test]
fn s21_rows_are_slots_up_to_the_highest_with_a_request() {
    check(
        &direct(4),
        "0:+1< 0:+2< 0:+3< 0:+4< 1:!0 2:!0 3:+3 4:!0 5:+1>",
        "0:run0[0<]. 1:run0[_,1<,2<,3<] 3:run0[_,_,4]. 5:run0[5>].",
    );
    // One batch at a time, whatever waits.
    check(&direct(4), "0:+1< 0:+1 0:+2< 0:+2", "0:run0[0<].");
    check(&direct(0), "0:+1< 0:+2< 1:!0 2:+1> 3:!0", "0:run0[0<]. 2:run0[2>]. 3:run0[1<]");
    // The next sequence of a slot waits for the last execution of the previous one, not for its response.
    check(&direct(1), "0:+1<> 1:+2< 2:^0 3:.0", "0:run0[0<>]. 2:run0[1<]");
}

#[test]
fn s21_a_request_of_another_shape_waits_and_leaves_a_null_row() {
    // Golden shapes.same, shapes.diff: 50 ms for the batches, 500 for the request left over, which is ready in both.
    let config = delayed(4, 500, 0.5);
    check(&config, "0:+1<>/s2 50:+2<>/s2", "0:sleep 500 50:run0[0<>,1<>]slots");
    check(
        &config,
        "0:+1<>/s3 50:+2<>/s2 60:!0 600:?",
        "0:sleep 500 50:run0[0<>,_]slots 60:sleep 550 550:run0[_,1<>]delay",
    );
    // The first ready request decides.
    check(&direct(4), "0:+1< 0:+2</s2 0:+3</s3 0:+4</s2 1:!0 2:!0", "0:run0[0<]. 1:run0[_,1<,_,3<] 2:run0[_,_,2<]");
}

#[test]
fn s21_utilization_and_delay() {
    // Golden util.two, util.one, util.one.high.
    check(
        &delayed(4, 700, 0.5),
        "0:+1< 100:+2< 101:!0 200:+1> 901:!0 1000:+2> 1800:?",
        "0:sleep 700 100:run0[0<,1<]slots 200:sleep 900 900:run0[2>]delay 1000:sleep 1700 1700:run0[_,3>]delay",
    );
    // Golden util1.four.
    check(&delayed(4, 500, 1.0), "0:+1<> 50:+2<> 100:+3<> 150:+4<>", "0:sleep 500 150:run0[0<>,1<>,2<>,3<>]slots");
    // Golden delay.two: neither the delay alone nor the utilization alone has an effect.
    check(&delayed(4, 500, 0.0), "0:+1<> 100:!0", "0:run0[0<>].");
    check(&delayed(4, 0, 1.0), "0:+1<>", "0:run0[0<>].");
    // The oldest request counts, on any slot.
    check(
        &delayed(2, 500, 1.0),
        "0:+1< 500:? 510:+2< 520:+1 530:!0 1100:?",
        "0:sleep 500 500:run0[0<]delay 530:run0[2,1<]",
    );
}

#[test]
fn s22_a_sequence_has_one_request_in_the_batcher() {
    check(&oldest(4, 0), "0:+1< 0:+1 0:+1 0:+2< 1:!0 2:!0", "0:run0[0<]. 1:run0[3<,1] 2:run0[2]");
    // The next request of a slot enters on release, not at the end of the execution; also if it is of another sequence.
    check(&oldest(4, 1), "0:+1< 1:+1> 2:+2<> 3:^0 4:.0 5:^0 6:.0", "0:run0[0<]. 4:run0[1>]. 6:run0[2<>].");
    // As many candidates as configured; by default as many as rows.
    check(&oldest(4, 2), "0:+1< 0:+2< 0:+3< 1:!0 2:+1> 3:!0 4:!0", "0:run0[0<]. 1:run0[1<] 3:run0[3>] 4:run0[2<]");
    assert_eq!(
        [oldest(3, 0).slots_per_instance(), oldest(0, 0).slots_per_instance(), oldest(3, 9).slots_per_instance()],
        [3, 1, 9]
    );
    // No null rows, and shapes are not mixed.
    check(
        &oldest(4, 4),
        "0:+1< 0:+2</s1 0:+3</s2 0:+4</s1 1:!0 2:!0 3:!0",
        "0:run0[0<]. 1:run0[1<] 2:run0[2<] 3:run0[3<]",
    );
}

#[test]
fn s22_each_instance_batches_as_a_dynamic_batcher_does() {
    let strategy = Strategy::Oldest { max_candidate_sequences: 8, preferred: vec![2], max_queue_delay_us: 300 };
    let strict = Config { strict_delay: true, ..config(strategy, 4) };
    check(&strict, "0:+1<> 400:?", "0:sleep 300 300:run0[0<>]delay");
    check(&strict, "0:+1< 10:+2<", "0:sleep 300 10:run0[0<,1<]preferred");
    // The delay of a request begins when it enters the batcher.
    check(
        &strict,
        "0:+1< 1:+1> 2:+2<> 3:!0 5:? 400:!0 900:?",
        "0:sleep 300 2:run0[0<,2<>]preferred 3:sleep 303 303:run0[1>]delay",
    );
}

fn iterative(config: Config) -> Config {
    Config { iterative: true, ..config }
}

#[test]
fn s25_a_request_of_an_iterative_sequence_may_return() {
    for config in [direct(2), oldest(2, 2)].map(iterative) {
        check(&config, "0:+_ 1:@0 2:@0 3:!0 4:+0> 5:@0", "0:run0[0<]. 1:run0[0] 2:run0[0] 4:run0[1<>]. 5:run0[1]");
        let returned = if matches!(config.strategy, Strategy::Direct { .. }) {
            "0:run0[0<]. 1:run0[0,1<] 2:run0[0,1]"
        } else {
            "0:run0[0<]. 1:run0[1<,0] 2:run0[1,0]"
        };
        check(&config, "0:+_ 0:+_ 1:@0 2:@0", returned);
        // With an id from the client; the sequence ends with its request.
        check(
            &config,
            "0:+9< 1:@0 2:!0 3:+9 4:+9<",
            "0:run0[0<]. 1:run0[0] 3:refused[1] NotStarted(Number(9)) 4:run0[2<].",
        );
        // Later requests wait, and run though the sequence is over.
        check(
            &config,
            "0:+9< 1:+9 2:@0 3:!0 4:+9 5:!0",
            "0:run0[0<]. 2:run0[0] 3:run0[1] 4:refused[2] NotStarted(Number(9))",
        );
        // A sequence that was started again is not over.
        check(&config, "0:+9< 1:+9< 2:@0 3:!0 4:+9 5:!0", "0:run0[0<]. 1:conflict[1] 2:run0[0] 3:run0[1<] 5:run0[2]");
        // Clients cannot use internal ids.
        check(&config, "0:+_ 1:+1", "0:run0[0<]. 1:refused[1] NotStarted(Number(1))");
        // Cancelled between two steps.
        check(&config, "0:+9< 1:~0 2:@0 3:+9", "0:run0[0<]. 2:cancelled[0] 3:refused[1] NotStarted(Number(9))");
        check(&config, "0:+_ 1:S 2:+_ 3:@0 4:!0", "0:run0[0<]. 2:refused[1] Stopping 3:run0[0]");
    }
    for config in single() {
        check(&config, "0:+9< 1:@0 2:+9", "0:run0[0<]. 1:refused[0] NotIterative 2:run0[1].");
    }
}

#[test]
fn s23_s25_a_sequence_cancelled_between_two_steps_is_forgotten() {
    // Its END was handed out before, with the first step.
    for config in single().map(iterative) {
        let mut s = SequenceScheduler::new(config);
        s.watch_forgotten();
        let head = Head { id: SequenceId::Number(9), start: true, end: true, timeout_us: 0 };
        let request = common::request(0, 1, 0);
        let given_up = request.clone();
        assert!(s.push(0, head, request).is_ok());
        let NextRun::Run(run) = s.step(0, &[0], &mut vec![]) else { panic!("it can run") };
        let ran = run.rows.into_iter().next().and_then(|row| row.request).expect("a request");
        given_up.cancelled.set(true);
        assert!(s.again(1, ran.origin, ran.item).is_ok());
        let mut removed = vec![];
        s.step(2, &[0], &mut removed);
        assert_eq!((removed.len(), s.alive(), s.forgotten().len()), (1, 0, 1));
    }
}

#[test]
fn r51_an_ended_sequence_runs_its_waiting_requests_and_is_not_continued() {
    for config in single() {
        let mut player = Player::new(config);
        assert_eq!(player.play("0:+1< 1:+1"), "0:run0[0<].");
        assert!(player.scheduler.end(1000, &id("1")) && !player.scheduler.end(1000, &id("1")));
        assert_eq!(player.play("2:+1 3:!0"), "2:refused[2] NotStarted(Number(1)) 3:run0[1]");
        assert_eq!(player.scheduler.alive(), 0);
    }
}

#[test]
fn s25_an_iterative_sequence_is_not_idle_while_the_model_has_its_request() {
    for config in single().map(iterative) {
        let mut player = Player::new(Config { idle_us: 100, ..config });
        let trace = player.play("0:+9< 350:@0 360:+9 900:@0 910:!0 920:!0 930:+9");
        let runs: Vec<_> = trace.split(' ').filter(|t| t.contains("run")).collect();
        assert_eq!(runs, ["0:run0[0<].", "350:run0[0]", "900:run0[0]", "910:run0[1]"]);
        assert!(trace.ends_with("930:refused[2] NotStarted(Number(9))"), "{trace}");
        assert_eq!(player.scheduler.alive(), 0);
    }
}

#[test]
fn s41_a_sequence_ends_with_a_cancelled_request() {
    for config in single() {
        check(
            &config,
            "0:+1< 1:+1 2:+1 3:-1 4:+1 5:!0 6:+2<",
            "0:run0[0<]. 3:cancelled[1] 3:cancelled[2] 4:refused[3] NotStarted(Number(1)) 6:run0[4<].",
        );
        // Requests in front of it are not affected.
        check(
            &config,
            "0:+1< 1:+1 2:+1 3:-2 4:!0 5:+1",
            "0:run0[0<]. 3:cancelled[2] 4:run0[1] 5:refused[3] NotStarted(Number(1))",
        );
        // The sequence that was started after it is not affected either.
        check(
            &config,
            "0:+1< 1:+1 2:+1< 3:+1 4:-1 5:!0 6:!0",
            "0:run0[0<]. 2:conflict[2] 4:cancelled[1] 5:run0[2<] 6:run0[3]",
        );
        // Cancelled without a call: found when its turn comes.
        check(&config, "0:+1< 1:+1 2:+1> 3:+2< 4:~1 5:!0", "0:run0[0<]. 5:cancelled[1] 5:cancelled[2] 5:run0[3<]");
        // Golden cancel.running: cancelled while it runs, and the sequence goes on.
        check(&config, "0:+1< 1:-0 2:!0 3:+1>", "0:run0[0<]. 3:run0[1>].");
    }
}

#[test]
fn s41_a_waiting_sequence_is_cancelled_as_a_whole() {
    for config in single() {
        // Golden cancel.backlog, and .single.
        check(
            &config,
            "0:+1< 1:+2< 2:+2 3:-2 4:+2 5:+3<> 6:+1> 7:!0 8:!0",
            "0:run0[0<]. 3:cancelled[1] 3:cancelled[2] 4:refused[3] NotStarted(Number(2)) 7:run0[5>] 8:run0[4<>]",
        );
        check(&config, "0:+1< 1:+2<> 2:-1 3:+1> 4:+2<> 5:!0 6:!0", "0:run0[0<]. 2:cancelled[1] 5:run0[2>] 6:run0[3<>]");
        // Cancelled without a call: found when the sequence would get the slot.
        check(&config, "0:+1< 1:+2< 2:+3< 3:~1 4:+1> 5:!0 6:!0", "0:run0[0<]. 5:cancelled[1] 5:run0[3>] 6:run0[2<]");
        // Its timeout is removed with it, that of a later START stays.
        check(
            &config,
            "0:+1< 1:+2</t100 2:+2</t300 3:-1 400:?",
            "0:run0[0<]. 1:sleep 101 2:conflict[2] 3:cancelled[1] 3:sleep 302 302:expired[2]",
        );
    }
}

#[test]
fn s41_a_request_cancelled_in_the_batcher_cancels_the_rest_of_its_sequence() {
    for notice in ["-", "~"] {
        check(
            &oldest(1, 2),
            &format!("0:+1< 0:+2< 0:+2 0:+3<> 1:{notice}1 2:!0 3:+2"),
            &format!(
                "0:run0[0<]. {0}:cancelled[1] {0}:cancelled[2] 2:run0[3<>] 3:refused[4] NotStarted(Number(2))",
                if notice == "-" { 1 } else { 2 }
            ),
        );
    }
}

#[test]
fn r51_a_stopped_model_finishes_its_sequences() {
    for config in single() {
        let mut player = Player::new(config);
        assert_eq!(
            player.play("0:+1< 1:+2< 2:S 3:+3< 4:+1< 5:+2> 6:+1> 7:!0"),
            "0:run0[0<]. 3:refused[2] Stopping 4:refused[3] Stopping 7:run0[5>]"
        );
        assert!(player.scheduler.alive() > 0);
        assert_eq!(player.play("8:!0 9:!0 10:!0"), "8:run0[1<] 9:run0[4>]");
        assert_eq!((player.scheduler.alive(), player.scheduler.is_empty()), (0, true));
        // After the drain all requests are returned.
        let mut player = Player::new(single()[0].clone());
        assert_eq!(
            player.play("0:+1< 1:+1 2:+2< 3:+2 4:D 5:!0 6:+1"),
            "0:run0[0<]. 4:drained[1,2,3] 6:refused[4] NotStarted(Number(1))"
        );
        assert_eq!(player.play("7:+1<"), "7:run0[5<].");
    }
    check(&iterative(oldest(1, 1)), "0:+9< 1:D 2:+8< 3:@0", "0:run0[0<]. 1:drained[] 3:refused[0] Drained 3:run0[1<]");
}

#[test]
fn r51_idle_sequences_of_a_server_that_exits_are_forgotten_soon() {
    for config in [direct(3), oldest(3, 3)] {
        let mut s = SequenceScheduler::new(Config { idle_us: 100_000, ..config });
        let number = |n| SequenceId::Number(n);
        for (at, n) in [(0, 1), (50_000_000, 2), (99_000_000, 3)] {
            let head = Head { id: number(n), start: true, end: false, timeout_us: 0 };
            assert!(s.push(at, head, common::request(n as usize, 1, 0)).is_ok());
            let mut removed = Vec::new();
            while let NextRun::Run(run) = s.step(at, &[0], &mut removed) {
                for request in run.rows.into_iter().filter_map(|row| row.request) {
                    s.released(at, request.origin);
                }
            }
        }
        s.limit_idle(99_000_000, 10_000);
        // A limit longer than the current idle time changes nothing.
        s.limit_idle(99_500_000, 20_000);
        let mut known = |now| (1..=3).filter(|&n| s.knows(now, &number(n))).collect::<Vec<u64>>();
        assert_eq!(known(99_900_000), [1, 2, 3]);
        assert_eq!(known(100_000_000), [2, 3], "its own time was over before");
        assert_eq!(known(108_999_000), [2, 3]);
        assert_eq!(known(109_000_000), [0; 0]);
        s.step(109_000_000, &[0], &mut Vec::new());
        assert_eq!(s.alive(), 0);
    }
}

#[test]
fn s47_sequences_wait_until_enough_requests_are_queued() {
    let waits = Config { delay_scheduler: 3, ..direct(2) };
    check(&waits, "0:+1< 1:+2< 2:+1 3:!0", "2:run0[0<,1<]. 3:run0[2]");
    check(&Config { backlog_delay_scheduler: 1, ..waits.clone() }, "0:+1< 1:+2< 2:+1 3:+3<", "3:run0[0<,1<].");
    check(
        &Config { delay_scheduler: 2, ..oldest(2, 2) },
        "0:+1< 1:+1 2:+2< 3:!0 4:!0",
        "2:run0[0<,2<]gathered 3:run0[1]",
    );
}

#[test]
fn the_number_of_sequences_is_limited() {
    let config = Config { sequences_max: 3, ..direct(2) };
    check(
        &config,
        "0:+1< 0:+2< 0:+3< 0:+4< 1:+3 2:+1> 3:!0 4:!0 5:+4<",
        "0:run0[0<]. 0:refused[3] TooMany { limit: 3 } 3:run0[5>,1<] 4:run0[2<]",
    );
    // Neither a configuration without limits helps, nor ending the sequences at once.
    let mut s = SequenceScheduler::new(Config { sequences_max: 1000, instances: 4096, ..oldest(1, u32::MAX) });
    let mut accepted = 0;
    for n in 1..20_000 {
        let head = Head { id: SequenceId::Number(n), start: true, end: n % 2 == 0, timeout_us: 0 };
        let request = common::request(0, 1, 0);
        accepted += usize::from(s.push(n, head, request).is_ok());
    }
    // The ended ones are in the batchers, and their slots are free.
    assert!(s.alive() <= 1000 && accepted < 2001 && s.len() == accepted, "{} {accepted}", s.alive());
}

#[test]
fn many_idle_sequences_are_forgotten_over_several_steps() {
    let mut s = SequenceScheduler::new(Config { idle_us: 100, ..oldest(8, 1000) });
    for n in 1..=1000 {
        let head = Head { id: SequenceId::Number(n), start: true, end: false, timeout_us: 0 };
        assert!(s.push(0, head, common::request(0, 1, 0)).is_ok());
    }
    let (mut now, mut steps) = (100_000, 0);
    while s.alive() > 0 {
        let before = s.alive();
        let step = s.step(now, &[], &mut vec![]);
        assert!((1..=256).contains(&(before - s.alive())), "{before} to {}", s.alive());
        steps += 1;
        if let NextRun::SleepUntil(at) = step {
            now = at;
        }
    }
    assert_eq!((steps, now), (4, 100_003), "as soon as the lock was offered to the next batch");
}

#[test]
fn s18_s23_state_of_an_idle_sequence_is_dropped_after_its_last_request_has_it() {
    let mut s = SequenceScheduler::new(Config { idle_us: 100, ..direct(1) });
    s.watch_forgotten();
    let head = |start| Head { id: SequenceId::Number(1), start, end: false, timeout_us: 0 };
    assert!(s.push(0, head(true), common::request(0, 1, 0)).is_ok());
    assert!(matches!(s.step(0, &[0], &mut vec![]), NextRun::Run(_)));
    assert!(s.push(1000, head(false), common::request(1, 1, 0)).is_ok());
    // Its idle time passes while the first request runs; the second one still runs.
    assert!(!matches!(s.step(200_000, &[], &mut vec![]), NextRun::Run(_)));
    assert_eq!((s.alive(), s.forgotten()), (1, vec![]));
    assert!(matches!(s.step(200_000, &[0], &mut vec![]), NextRun::Run(_)));
    assert_eq!((s.alive(), s.forgotten()), (0, vec![]));
    // The next sequence of the slot begins after that.
    assert!(s.push(200_000, head(true), common::request(2, 1, 0)).is_ok());
    assert!(matches!(s.step(200_000, &[0], &mut vec![]), NextRun::Run(_)));
    assert_eq!((s.alive(), s.forgotten()), (1, vec![SlotId { instance: 0, slot: 0 }]));
}

#[test]
fn s25_s41_state_is_dropped_with_a_request_cancelled_between_two_steps() {
    for config in single().map(iterative) {
        let mut s = SequenceScheduler::new(config);
        s.watch_forgotten();
        let request = common::request(0, 1, 0);
        let head = Head { id: SequenceId::Number(1), start: true, end: true, timeout_us: 0 };
        assert!(s.push(0, head, request.clone()).is_ok());
        let NextRun::Run(run) = s.step(0, &[0], &mut vec![]) else { panic!("it runs") };
        let row = run.rows.into_iter().find_map(|row| row.request).expect("a request");
        assert!(s.again(1000, row.origin, row.item).is_ok());
        request.cancelled.set(true);
        let mut removed = vec![];
        s.remove_cancelled(2000, &mut removed);
        assert_eq!((removed.len(), s.alive(), s.forgotten()), (1, 0, vec![SlotId { instance: 0, slot: 0 }]));
    }
}

#[test]
fn the_text_of_an_id_does_not_keep_its_request_in_memory() {
    let body = Name::from("sequence".to_owned());
    let held = body.bytes().clone();
    let mut s = SequenceScheduler::new(direct(1));
    let head = Head { id: SequenceId::Text(body), start: true, end: false, timeout_us: 0 };
    assert!(s.push(0, head, common::request(0, 1, 0)).is_ok());
    assert!(s.alive() == 1 && held.is_unique());
}

#[test]
fn errors_have_tritons_texts() {
    let id = SequenceId::Number(50);
    let told = |refusal: SequenceError| {
        let error = refusal.error("m");
        (error.code(), error.message().to_owned())
    };
    let is = |refusal, code, text: &str| assert_eq!(told(refusal), (code, text.to_owned()));
    is(
        SequenceError::NotStarted(id.clone()),
        Code::InvalidArg,
        "inference request for sequence 50 to model 'm' must specify the START flag on the first request of the \
         sequence",
    );
    is(
        SequenceError::BatchSize,
        Code::InvalidArg,
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher",
    );
    is(
        SequenceError::NoId,
        Code::InvalidArg,
        "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
    );
    is(
        SequenceError::Stopping,
        Code::Unavailable,
        "Server is stopping, scheduler for model has stopped accepting new inference requests",
    );
    is(
        SequenceError::NotIterative,
        Code::InvalidArg,
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to \
         handle such a flag.",
    );
    assert!(told(SequenceError::TooMany { limit: 7 }).1.contains("'m' has 7 sequences"));
    let expired = RemovalReason::Expired.error();
    assert_eq!(
        (expired.code(), expired.message()),
        (Code::Unavailable, "timeout of the corresponding sequence has been expired")
    );
    assert_eq!(
        (RemovalReason::Cancelled.error().code(), RemovalReason::Cancelled.error().message()),
        (Code::Cancelled, "")
    );
    assert_eq!(
        conflict_warning(&SequenceId::Text(Name::from("s")), "m"),
        "sequence s for model 'm' has a conflict. The previous sequence did not end before this sequence start. \
         Previous sequence will be terminated early."
    );
}
