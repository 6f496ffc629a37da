//! The client's request and the parts of the plan that it needs. Immutable during the execution.

use crate::plan::{Plan, Step};
use protocol::{Checked, InferRequest, RequestedOutput};
use smallvec::SmallVec;
use tensor::{Data, RegionRef};

pub(crate) struct RequestPlan {
    /// The request; `GraphExecution` takes its inputs when it starts.
    pub(crate) head: InferRequest,
    /// Copy of `Checked::outputs`.
    pub(crate) wanted: SmallVec<[(u16, Option<u16>); 4]>,
    pruned: Option<Pruned>,
    /// True for each output of the request whose region a step may write to before all have ended. Empty without
    /// regions.
    apart: SmallVec<[bool; 4]>,
}

/// The parts of the plan that a request for some of the outputs needs.
struct Pruned {
    steps: Vec<bool>,
    /// Number of requested outputs of each tensor.
    outputs: Vec<usize>,
}

impl RequestPlan {
    pub(crate) fn new(plan: &Plan, head: InferRequest, checked: &Checked) -> Self {
        let pruned = (checked.outputs.len() < plan.outputs.len()).then(|| {
            let tensors = checked.outputs.iter().filter_map(|(o, _)| plan.outputs.get(usize::from(*o)).copied());
            let mut outputs = vec![0; plan.tensors.len()];
            for tensor in tensors.clone() {
                if let Some(count) = outputs.get_mut(tensor) {
                    *count += 1;
                }
            }
            Pruned { steps: plan.needed_for(tensors), outputs }
        });
        Self { apart: apart(&head), head, wanted: checked.outputs.clone(), pruned }
    }

    pub(crate) fn needs(&self, plan: &Plan, step: usize) -> bool {
        let needed = self.pruned.as_ref().map_or(&plan.needed, |p| &p.steps);
        needed.get(step).copied().unwrap_or(false)
    }

    pub(crate) fn outputs_of(&self, plan: &Plan, tensor: usize) -> usize {
        match &self.pruned {
            Some(pruned) => pruned.outputs.get(tensor).copied().unwrap_or(0),
            None => plan.tensors.get(tensor).map_or(0, |t| t.outputs),
        }
    }

    /// The outputs that a step must return. An output that only the client uses has the client's region as an offer
    /// (`OutputForm::anywhere`), which a step accepts if that saves a copy. Steps behind decoupled ones get no region,
    /// because their responses would overwrite each other before they are sent.
    pub(crate) fn asked_of(&self, plan: &Plan, step: &Step) -> SmallVec<[RequestedOutput; 2]> {
        let mut requested: SmallVec<[RequestedOutput; 2]> = SmallVec::new();
        let mut offers = false;
        if step.takes_regions && step.into == 0 && !self.apart.is_empty() {
            for (output, &tensor) in step.requested.iter().zip(step.outputs.iter().flatten()) {
                let region = self.offer(plan, tensor).cloned();
                offers |= region.is_some();
                requested.push(RequestedOutput { region, ..output.clone() });
            }
        }
        match (offers, step.wants_all) {
            (true, _) => requested,
            (false, true) => SmallVec::new(),
            (false, false) => step.requested.iter().cloned().collect(),
        }
    }

    /// The client's region for a tensor that no step reads.
    fn offer(&self, plan: &Plan, tensor: usize) -> Option<&RegionRef> {
        let is_taken = plan.tensors.get(tensor)?.consumers.iter().any(|&step| self.needs(plan, step));
        let mut outputs = self.wanted.iter().filter(|(o, _)| plan.outputs.get(usize::from(*o)) == Some(&tensor));
        let (Some((_, Some(at))), None, false) = (outputs.next(), outputs.next(), is_taken) else { return None };
        let is_apart = *self.apart.get(usize::from(*at))?;
        self.head.outputs.get(usize::from(*at))?.region.as_ref().filter(|_| is_apart)
    }
}

/// True for each output of a request whose region contains nothing else of the request, so that no step reads and no
/// other output overwrites an early write. Empty without regions.
fn apart(request: &InferRequest) -> SmallVec<[bool; 4]> {
    let regions = || request.outputs.iter().map(|output| output.region.as_ref());
    if regions().all(|region| region.is_none()) {
        return SmallVec::new();
    }
    let is_apart = |(at, region): (usize, Option<&RegionRef>)| {
        let Some(region) = region else { return false };
        let is_read = request.inputs.iter().any(|i| matches!(&i.data, Data::Region(r) if r.overlaps(&**region)));
        let mut others = regions().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, other)| other);
        !is_read && !others.any(|other| other.overlaps(&**region))
    };
    regions().enumerate().map(is_apart).collect()
}
