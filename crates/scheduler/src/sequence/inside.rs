//! Requests in the batcher that an instance has with the oldest strategy.

use super::{Config, Request, Strategy};
use crate::batcher::Batcher;
use crate::{Dynamic, Waiting};

/// A request in a batcher.
pub(super) struct Inside<T>(pub Request<T>);

impl<T: Waiting> Waiting for Inside<T> {
    fn rows(&self) -> u32 {
        self.0.item.rows()
    }
    fn is_cancelled(&self) -> bool {
        self.0.item.is_cancelled()
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.0.item.fits_with(&first.0.item)
    }
    fn class(&self) -> u64 {
        self.0.item.class()
    }
}

/// The batcher of one instance; `None` with another strategy.
pub(super) fn batcher<T: Waiting>(config: &Config) -> Option<Batcher<Inside<T>>> {
    let Strategy::Oldest { preferred, max_queue_delay_us, .. } = &config.strategy else { return None };
    let dynamic =
        Dynamic { preferred: preferred.clone(), max_queue_delay_us: *max_queue_delay_us, ..Dynamic::default() };
    Some(Batcher::new(crate::Config {
        max_batch_size: config.max_batch_size,
        dynamic: Some(dynamic),
        instances: 1,
        strict_delay: config.strict_delay,
        delay_scheduler: config.delay_scheduler,
        tokens_max: None,
        cores: None,
    }))
}
