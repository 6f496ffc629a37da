//! Readiness checks of a model's code.

use super::{Question, Runner};
use crate::frames::{self, InstanceId};
use crate::generated::Frame;
use crate::lifecycle::Lifecycle;
use crate::transport::Way;
use backend::{ReadyAnswer, now_ns};
use std::time::Duration;
use tensor::Error;

/// Time for the response to a readiness check.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(5);

impl Runner {
    /// Starts a readiness check. Checks that start before its response share it.
    pub(crate) fn ask(&self, answer: ReadyAnswer) {
        let mut state = self.state.lock();
        if !matches!(state.lifecycle, Lifecycle::Ready { .. }) {
            drop(state);
            return answer(Err(self.not_healthy()));
        }
        if let Some(open) = state.questions.last_mut() {
            open.answers.push(answer);
            return;
        }
        state.asked += 1;
        let number = state.asked;
        state.questions.push(Question { number, since: now_ns(), answers: vec![answer] });
        drop(state);
        let mut frame = Vec::new();
        frames::write::question(&mut frame, InstanceId::ONLY, Frame::IsReady, number);
        self.transport.send(Way::Side, &frame);
        self.later(QUESTION_TIME, |runner| runner.check_questions());
    }

    pub(super) fn answered(&self, number: u64, is_ready: bool) {
        let mut state = self.state.lock();
        if state.questions.iter().any(|q| number > q.number) {
            drop(state);
            // The checks end with the runner.
            return self.condemn("it responded to a question that was not sent");
        }
        // A late response to a check that timed out also answers the current ones.
        let all = std::mem::take(&mut state.questions);
        drop(state);
        for answer in all.into_iter().flat_map(|q| q.answers) {
            let no = || Error::unavailable(format!("'{}' reports that it is not ready", self.name)).by_model();
            answer(if is_ready { Ok(()) } else { Err(no()) });
        }
    }

    pub(super) fn check_questions(&self) {
        let late = now_ns().saturating_sub(u64::try_from(QUESTION_TIME.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.questions);
        let (old, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|q| q.since <= late);
        state.questions = rest;
        drop(state);
        for answer in old.into_iter().flat_map(|q| q.answers) {
            answer(Err(Error::unavailable(format!("'{}' did not report in time whether it is ready", self.name))));
        }
    }
}
