//! Passes control operations from the front ends to TypeScript and returns the replies. Rare; bounded.

use crate::objects::{ControlCall, ControlFile};
use backend::ControlAnswer;
use frontend::{Argument, ControlOperation};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use nereid_core::Controller;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use tensor::{Error, Result};

/// Operations queued for the JavaScript thread.
const QUEUE_MAX: usize = 1024;

/// Largest argument in bytes, files included. JavaScript strings end at 512 MiB; a longer one ends the process.
const ARGUMENT_BYTES_MAX: usize = 256 << 20;

/// A call queued for the JavaScript thread.
struct Queued {
    id: u32,
    operation: ControlOperation,
    argument: Argument,
}

type ControlFunction = ThreadsafeFunction<Queued, (), FnArgs<(ControlCall,)>, napi::Status, false, true, QUEUE_MAX>;

pub struct Bridge {
    calls: ControlFunction,
    waiting: Mutex<HashMap<u32, ControlAnswer>>,
    next: AtomicU32,
}

impl Bridge {
    pub fn new(f: &Function<'_, FnArgs<(ControlCall,)>, ()>) -> napi::Result<Self> {
        let calls =
            f.build_threadsafe_function::<Queued>().max_queue_size::<QUEUE_MAX>().weak::<true>().build_callback(
                |ctx| {
                    let Queued { id, operation, mut argument } = ctx.value;
                    let files = std::mem::take(&mut argument.files).into_iter();
                    let files = files.map(|(parameter, contents)| ControlFile { parameter, contents: contents.into() });
                    let files = files.collect();
                    let argument = std::mem::take(&mut argument.json);
                    Ok(FnArgs::from((ControlCall { id, operation: operation.name(), argument, files },)))
                },
            )?;
        Ok(Self { calls, waiting: Mutex::default(), next: AtomicU32::new(1) })
    }

    pub fn reply(&self, id: u32, result: Result<String>) {
        let waiting = self.waiting.lock().remove(&id);
        if let Some(answer) = waiting {
            answer(result);
        }
    }
}

impl Controller for Bridge {
    fn start(&self, operation: ControlOperation, argument: Argument, answer: ControlAnswer) {
        if argument.bytes() > ARGUMENT_BYTES_MAX {
            let text = format!(
                "the request holds {} bytes, at most {ARGUMENT_BYTES_MAX} are taken; \
                 put larger files into the repository",
                argument.bytes()
            );
            return answer(Err(Error::invalid(text)));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(id, answer);
        if self.calls.call(Queued { id, operation, argument }, ThreadsafeFunctionCallMode::NonBlocking)
            != napi::Status::Ok
        {
            self.reply(
                id,
                Err(Error::unavailable(format!(
                    "more than {QUEUE_MAX} control operations are waiting; try again later"
                ))),
            );
        }
    }
}
