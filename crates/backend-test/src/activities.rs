//! Activities that an identity model reports to the traces of its requests, as Triton's does (O-48): a pair with a
//! pause between, a single one, and a configured number of nested pairs. They take time only for traced requests.

use crate::delay;
use backend::{BatchEntry, RunControl, now_ns};
use protocol::pb::inference::ModelConfig;
use std::time::Duration;
use tensor::{Error, Result};
use trace::{Activity, Trace};

/// Maximum of `nested_span_count`: each nested pair takes [`PAUSE`] and two activities of the record.
const NESTED_MAX: u16 = 1000;

/// Duration of an innermost pair.
const PAUSE: Duration = Duration::from_millis(100);

/// Parameters of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activities {
    nested: u16,
    /// Interval of nested pairs: the first of each interval contains a single activity.
    single_every: u16,
}

impl Activities {
    /// `None` if activities are not enabled.
    ///
    /// # Errors
    /// INVALID_ARG for a value that is not a number or out of range.
    pub(crate) fn read(config: &ModelConfig) -> Result<Option<Self>> {
        let text = |key: &str| config.parameters.get(key).map(|parameter| &*parameter.string_value);
        if text("enable_custom_tracing") != Some("true") {
            return Ok(None);
        }
        let number = |key: &str, otherwise: u16, min: u16, max: u16| match text(key) {
            None => Ok(otherwise),
            Some(text) => text.trim().parse().ok().filter(|n| (min..=max).contains(n)).ok_or_else(|| {
                Error::invalid(format!("parameter '{key}' has to be a number from {min} to {max}, got '{text}'"))
            }),
        };
        let nested = number("nested_span_count", 0, 0, NESTED_MAX)?;
        let single_every = number("single_activity_frequency", 1, 1, u16::MAX)?;
        Ok(Some(Self { nested, single_every }))
    }

    /// Reports activities to each traced request of the batch in turn. False if the batch was cancelled meanwhile.
    pub(crate) fn report(self, requests: &[BatchEntry], control: &RunControl) -> bool {
        let mut traces = requests.iter().filter_map(|entry| entry.request.trace.as_ref());
        traces.all(|trace| !trace.is_recorded() || self.report_to(trace, control))
    }

    fn report_to(self, trace: &Trace, control: &RunControl) -> bool {
        let note = |activity| trace.custom(activity, now_ns());
        note(Activity::CustomStart);
        let mut is_wanted = delay::wait(PAUSE, control);
        note(Activity::CustomEnd);
        note(Activity::CustomSingle);
        let mut open = 0;
        while is_wanted && open < self.nested {
            note(Activity::CustomNestedStart(open));
            is_wanted = delay::wait(PAUSE, control);
            if open % self.single_every == 0 {
                note(Activity::CustomSingle);
            }
            open += 1;
        }
        // A cancelled batch ends its open activities, too.
        (0..open).rev().for_each(|number| note(Activity::CustomNestedEnd(number)));
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::ModelParameter;
    use protocol::{Checked, InferRequest};
    use trace::{TraceMode, TraceSetting, Tracer};

    fn read(parameters: &[(&str, &str)]) -> Result<Option<Activities>> {
        let mut config = ModelConfig::default();
        for &(key, value) in parameters {
            config.parameters.insert(key.into(), ModelParameter { string_value: value.into() });
        }
        Activities::read(&config)
    }

    #[test]
    fn o48_parameters_are_read_if_activities_are_enabled() {
        let on = ("enable_custom_tracing", "true");
        assert_eq!(read(&[("nested_span_count", "2")]), Ok(None));
        assert_eq!(read(&[("enable_custom_tracing", "false"), ("nested_span_count", "x")]), Ok(None));
        assert_eq!(read(&[on]), Ok(Some(Activities { nested: 0, single_every: 1 })));
        let both = [on, ("nested_span_count", "6"), ("single_activity_frequency", "3")];
        assert_eq!(read(&both), Ok(Some(Activities { nested: 6, single_every: 3 })));
        for (key, value, range) in [
            ("nested_span_count", "1001", "from 0 to 1000"),
            ("nested_span_count", "-1", "from 0 to 1000"),
            ("single_activity_frequency", "0", "from 1 to 65535"),
        ] {
            let error = read(&[on, (key, value)]).expect_err("out of range");
            assert_eq!(error.message(), format!("parameter '{key}' has to be a number {range}, got '{value}'"));
        }
    }

    /// Reports activities to `untraced` requests followed by a traced one; returns the result and the trace's
    /// activities.
    fn report(
        activities: Activities,
        untraced: usize,
        control: &RunControl,
    ) -> (bool, Vec<std::borrow::Cow<'static, str>>) {
        let tracer = Tracer::default();
        let setting =
            TraceSetting { number: 1, mode: TraceMode::Triton, timestamps: true, tensors: false, rate: 1, count: -1 };
        tracer.set("", Some(setting)).expect("few");
        let trace = tracer.watch("m").begin(|| None).expect("sampled");
        trace.accepted("m", 1, "", 1);
        let traced = InferRequest { trace: Some(trace), ..InferRequest::default() };
        let requests = std::iter::repeat_with(InferRequest::default).take(untraced).chain([traced]);
        let requests: Vec<_> = requests.map(|r| BatchEntry::new(r.into(), Checked::default())).collect();
        let is_wanted = activities.report(&requests, control);
        drop(requests);
        let stamps = &tracer.take(10).records[0].calls[0].activities;
        (is_wanted, stamps.iter().map(|stamp| stamp.activity.name()).collect())
    }

    #[test]
    fn o48_activities_are_reported_in_tritons_order_to_traced_requests() {
        let (is_wanted, names) = report(Activities { nested: 3, single_every: 2 }, 1, &RunControl::new(2));
        assert!(is_wanted);
        assert_eq!(
            names,
            [
                "REQUEST_START",
                "QUEUE_START",
                "CUSTOM_ACTIVITY_START",
                "CUSTOM_ACTIVITY_END",
                "CUSTOM_SINGLE_ACTIVITY",
                "CUSTOM_ACTIVITY0_START",
                "CUSTOM_SINGLE_ACTIVITY",
                "CUSTOM_ACTIVITY1_START",
                "CUSTOM_ACTIVITY2_START",
                "CUSTOM_SINGLE_ACTIVITY",
                "CUSTOM_ACTIVITY2_END",
                "CUSTOM_ACTIVITY1_END",
                "CUSTOM_ACTIVITY0_END",
            ]
        );
    }

    #[test]
    fn o48_a_cancelled_batch_ends_its_open_activities_and_begins_no_more() {
        let control = RunControl::new(1);
        control.cancel_one();
        let (is_wanted, names) = report(Activities { nested: 3, single_every: 2 }, 0, &control);
        assert!(!is_wanted);
        assert_eq!(names[2..], ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END", "CUSTOM_SINGLE_ACTIVITY"]);
    }
}
