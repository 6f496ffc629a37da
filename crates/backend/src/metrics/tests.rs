use super::*;
use std::thread;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("refused").message().to_owned()
}

fn numbers(metrics: &CustomMetrics, family: &str) -> Vec<(Labels, f64)> {
    let found = metrics.snapshot().into_iter().find(|f| f.name == family);
    let number = |(labels, value)| match value {
        SeriesValue::Number(number) => (labels, number),
        SeriesValue::Histogram(_) => panic!("a histogram"),
    };
    found.map(|f| f.series.into_iter().map(number).collect()).unwrap_or_default()
}

#[test]
fn b_py_20_families_and_series_of_the_same_name_are_one() {
    let metrics = CustomMetrics::new(true);
    let (one, two) = (Holder::new(&metrics), Holder::new(&metrics));
    let (a, b) = (
        one.family_new("golden_c", "text", Kind::Counter).expect("new"),
        two.family_new("golden_c", "other text", Kind::Counter).expect("joined"),
    );
    assert_eq!(text(two.family_new("golden_c", "text", Kind::Gauge)), "Family name already exists with different type");
    let first = one.metric_new(a, labels(&[("a", "1"), ("b", "2")]), None).expect("new");
    let same = two.metric_new(b, labels(&[("b", "2"), ("a", "1")]), None).expect("joined");
    one.update(first, Update::Increment, 2.5).expect("counts");
    two.update(same, Update::Increment, 10.0).expect("counts");
    assert_eq!((one.value(first), two.value(same)), (Ok(12.5), Ok(12.5)));
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.len(), &*snapshot[0].description), (1, "text"), "the first description stays");
    // A handle of another process is unknown here.
    assert!(one.value(9).is_err());
}

#[test]
fn b_py_20_a_family_is_removed_with_its_series_when_every_creator_deleted_it() {
    let metrics = CustomMetrics::new(true);
    let (one, two) = (Holder::new(&metrics), Holder::new(&metrics));
    let a = one.family_new("golden_life", "d", Kind::Gauge).expect("new");
    let m = one.metric_new(a, labels(&[("l", "1")]), None).expect("new");
    one.update(m, Update::Set, 4.0).expect("sets");
    one.metric_delete(m);
    assert_eq!(numbers(&metrics, "golden_life"), [(labels(&[("l", "1")]), 4.0)], "as in Triton");
    let again = one.metric_new(a, labels(&[("l", "1")]), None).expect("joined");
    assert_eq!(one.value(again), Ok(4.0));
    let b = two.family_new("golden_life", "d", Kind::Gauge).expect("joined");
    one.family_delete(a);
    one.family_delete(a);
    let gone = "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' \
                object should be deleted AFTER its corresponding 'Metric' objects have been deleted.";
    assert_eq!(text(one.value(again)), gone);
    for update in [Update::Increment, Update::Set, Update::Observe] {
        assert_eq!(text(one.update(again, update, 1.0)), gone);
    }
    assert_eq!(text(one.metric_new(a, labels(&[]), None)), gone);
    assert_eq!(numbers(&metrics, "golden_life").len(), 1, "the other process has it");
    two.family_delete(b);
    assert_eq!(metrics.used(), [0, 0, 0]);
}

#[test]
fn b_py_20_everything_that_a_dead_process_held_is_deleted() {
    let metrics = CustomMetrics::new(true);
    let one = Holder::new(&metrics);
    let stays = one.family_new("shared", "d", Kind::Counter).expect("new");
    {
        let two = Holder::new(&metrics);
        for i in 0..100 {
            let family = two.family_new(&format!("f{}", i % 10), "d", Kind::Counter).expect("new");
            let metric = two.metric_new(family, labels(&[("i", &i.to_string())]), None).expect("new");
            two.update(metric, Update::Increment, 1.0).expect("counts");
        }
        let shared = two.family_new("shared", "d", Kind::Counter).expect("joined");
        let metric = two.metric_new(shared, Labels::new(), None).expect("new");
        two.update(metric, Update::Increment, 7.0).expect("counts");
        assert_eq!(metrics.used()[..2], [11, 101]);
    }
    // Its value in a family that others hold stays.
    assert_eq!(numbers(&metrics, "shared"), [(Labels::new(), 7.0)]);
    assert_eq!(metrics.used()[..2], [1, 1]);
    one.family_delete(stays);
    assert_eq!(metrics.used(), [0, 0, 0]);
}

#[test]
fn b_py_20_each_kind_rejects_updates_of_other_kinds() {
    let metrics = CustomMetrics::new(true);
    let holder = Holder::new(&metrics);
    let new = |kind: Kind, buckets: Option<Vec<f64>>| {
        let family = holder.family_new(kind.name(), "d", kind).expect("new");
        holder.metric_new(family, Labels::new(), buckets).expect("new")
    };
    let (counter, gauge) = (new(Kind::Counter, None), new(Kind::Gauge, None));
    let histogram = new(Kind::Histogram, Some(vec![0.1, 1.0, 10.0]));
    let refused = |metric, update| text(holder.update(metric, update, 1.0));
    assert_eq!(
        text(holder.update(counter, Update::Increment, -1.0)),
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
    );
    assert_eq!(refused(counter, Update::Set), "TRITONSERVER_METRIC_KIND_COUNTER does not support Set");
    assert_eq!(refused(counter, Update::Observe), "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe");
    assert_eq!(refused(gauge, Update::Observe), "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe");
    assert_eq!(refused(histogram, Update::Set), "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set");
    assert_eq!(refused(histogram, Update::Increment), "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment");
    assert_eq!(text(holder.value(histogram)), "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value");

    for value in [5.0, -7.5] {
        holder.update(gauge, Update::Increment, value).expect("gauges");
    }
    assert_eq!(holder.value(gauge), Ok(-2.5));
    holder.update(counter, Update::Increment, f64::NAN).expect("as in Triton");
    assert!(holder.value(counter).expect("a number").is_nan());
    for value in [0.05, 0.1, 0.5, 5.0, 50.0, f64::NAN] {
        holder.update(histogram, Update::Observe, value).expect("observes");
    }
    let SeriesValue::Histogram(snapshot) = metrics.snapshot().remove(2).series.remove(0).1 else {
        panic!("a histogram")
    };
    assert_eq!((snapshot.bounds, snapshot.counts), (vec![0.1, 1.0, 10.0], vec![2, 1, 1, 2]));
    assert!(snapshot.sum.is_nan());
}

#[test]
fn b_py_20_names_and_buckets_that_prometheus_does_not_accept_are_rejected() {
    let metrics = CustomMetrics::new(true);
    let holder = Holder::new(&metrics);
    for name in ["", "1golden", "golden bad-name", "__x", "ü"] {
        assert_eq!(text(holder.family_new(name, "d", Kind::Counter)), "Invalid metric name", "{name}");
    }
    holder.family_new("vllm:tokens_total", "", Kind::Counter).expect("a colon is fine");
    let counter = holder.family_new("c", "d", Kind::Counter).expect("new");
    let histogram = holder.family_new("h", "d", Kind::Histogram).expect("new");
    for name in ["", "1", "a-b", "a:b", "__a"] {
        assert_eq!(text(holder.metric_new(counter, labels(&[(name, "x")]), None)), "Invalid label name", "{name}");
    }
    assert_eq!(text(holder.metric_new(histogram, labels(&[("le", "1")]), Some(vec![1.0]))), "Invalid label name");
    holder.metric_new(counter, labels(&[("le", "a\"b\\c\n中")]), None).expect("`le` on a counter, and any value");

    let histogram = |buckets: Option<&[f64]>| holder.metric_new(histogram, Labels::new(), buckets.map(<[f64]>::to_vec));
    assert_eq!(text(histogram(None)), "Failed to create metric. Missing required buckets.");
    for buckets in [&[2.0, 1.0][..], &[1.0, 1.0], &[f64::NAN], &[1.0, f64::INFINITY, f64::INFINITY]] {
        assert_eq!(text(histogram(Some(buckets))), "Bucket Boundaries must be strictly sorted", "{buckets:?}");
    }
    histogram(Some(&[1.0, f64::INFINITY])).expect("the last one is there anyhow");
    let snapshot = metrics.snapshot();
    let SeriesValue::Histogram(h) = &snapshot[2].series[0].1 else { panic!("a histogram") };
    assert_eq!((&h.bounds[..], h.counts.len()), (&[1.0][..], 2));
    let other = holder.metric_new(counter, Labels::new(), Some(vec![1.0]));
    assert_eq!(text(other), "Failed to create metric. Unexpected buckets found.");
}

#[test]
fn b_py_20_nothing_can_be_created_when_metrics_are_off() {
    let holder = Holder::new(&CustomMetrics::new(false));
    assert_eq!(text(holder.family_new("a", "d", Kind::Counter)), "metrics not supported");
}

#[test]
fn b_sec_07_metrics_of_models_are_limited_and_the_error_names_the_limit() {
    let metrics = CustomMetrics::new(true);
    let holder = Holder::new(&metrics);
    let family = holder.family_new("f", "d", Kind::Counter).expect("new");
    let many: Labels = (0..=LABELS_MAX).map(|i| (format!("l{i}"), String::new())).collect();
    assert!(text(holder.metric_new(family, many, None)).contains("64 labels"));
    let long = "x".repeat(TEXT_BYTES_MAX);
    assert!(text(holder.metric_new(family, labels(&[("l", &long)]), None)).contains("bytes of the labels"));
    assert!(text(holder.family_new("g", &format!("{long}x"), Kind::Counter)).contains("description"));
    let histogram = holder.family_new("h", "d", Kind::Histogram).expect("new");
    let buckets = (0..=BUCKETS_MAX).map(|i| i as f64).collect();
    assert!(text(holder.metric_new(histogram, Labels::new(), Some(buckets))).contains("512 buckets"));

    // Labels of half the maximum length reach the limit of bytes before that of series.
    let half = &long[1..TEXT_BYTES_MAX / 2];
    let error = (0..).find_map(|i: u32| holder.metric_new(family, labels(&[("l", &format!("{half}{i}"))]), None).err());
    assert!(error.expect("an end").message().contains("bytes of text"));
    assert!(metrics.used()[2] <= BYTES_MAX);
    holder.family_delete(family);

    let family = holder.family_new("f", "d", Kind::Counter).expect("new");
    let error = (0..).find_map(|i: u32| holder.metric_new(family, labels(&[("i", &i.to_string())]), None).err());
    assert!(error.expect("an end").message().contains("series"));
    assert_eq!(metrics.used()[1], SERIES_MAX);
    let error = (0..).find_map(|_| holder.metric_new(family, labels(&[("i", "0")]), None).err());
    assert!(error.expect("an end").message().contains("objects of one process"));
    // Other processes can continue until the limit of families.
    let other = Holder::new(&metrics);
    let error = (0..).find_map(|i: u32| other.family_new(&format!("f{i}"), "", Kind::Gauge).err());
    assert!(error.expect("an end").message().contains("families"));
    drop(holder);
    drop(other);
    assert_eq!(metrics.used(), [0, 0, 0]);
}

#[test]
fn b_py_20_a_metric_may_take_its_series_along() {
    let metrics = CustomMetrics::new(true);
    let holder = Holder::new(&metrics);
    let family = holder.family_new("f", "d", Kind::Histogram).expect("new");
    let new = || holder.metric_new(family, labels(&[("l", "v")]), Some(vec![1.0])).expect("new");
    let shown = || metrics.snapshot()[0].series.len();
    let empty = metrics.used();
    let (one, two) = (new(), new());
    holder.metric_delete_with_series(one);
    assert_eq!((shown(), metrics.used()[1]), (0, 1), "hidden while another metric has it");
    holder.update(two, Update::Observe, 2.0).expect("observes");
    assert_eq!(shown(), 1);
    holder.metric_delete_with_series(two);
    assert_eq!((shown(), metrics.used()), (0, [1, 0, empty[2]]));
    holder.metric_delete_with_series(two);
    holder.metric_delete_with_series(new());
    assert_eq!(metrics.used(), [1, 0, empty[2]]);
}

#[test]
fn b_py_20_concurrent_updates_are_counted_while_families_come_and_go() {
    let metrics = CustomMetrics::new(true);
    const THREADS: usize = 4;
    const ROUNDS: usize = 2000;
    let stays = Holder::new(&metrics);
    let kept = stays.family_new("sum", "d", Kind::Counter).expect("new");
    let seen = stays.metric_new(kept, Labels::new(), None).expect("new");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let holder = Holder::new(&metrics);
                let family = holder.family_new("sum", "d", Kind::Counter).expect("joined");
                let metric = holder.metric_new(family, Labels::new(), None).expect("joined");
                for _ in 0..ROUNDS {
                    holder.update(metric, Update::Increment, 1.0).expect("counts");
                    let brief = holder.family_new("brief", "d", Kind::Histogram).expect("new");
                    let one = holder.metric_new(brief, Labels::new(), Some(vec![1.0])).expect("new");
                    holder.update(one, Update::Observe, 2.0).expect("observes");
                    holder.metric_delete(one);
                    holder.family_delete(brief);
                }
            });
        }
        for _ in 0..100 {
            metrics.snapshot();
        }
    });
    assert_eq!(stays.value(seen), Ok((THREADS * ROUNDS) as f64));
    assert_eq!(metrics.used()[..2], [1, 1]);
}
