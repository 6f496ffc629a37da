//! Random ensembles, and an interpreter that computes their responses without order, threads or tickets.
//!
//! The outputs of a model are a hash of its inputs, so the interpreter and the code under test compute the same values
//! independently. The engine's tests use this file, too.
#![allow(dead_code)] // each test uses a part

use std::collections::{BTreeMap, BTreeSet};

const STEPS_MAX: u64 = 30;
/// Maximum number of decoupled steps in a chain.
const CHAIN_MAX: usize = 3;

/// Number of random graphs in a test; five times as many in the nightly run.
pub fn graphs() -> u64 {
    if std::env::var_os("NEREID_NIGHTLY").is_some() { 10_000 } else { 2_000 }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(7, |h, p| Random(h ^ p.rotate_left(17)).next())
}

/// Frequency of failures, missing responses and absent outputs: one in so many.
#[derive(Clone, Copy)]
pub struct Mood {
    pub fails: u64,
    pub silent: u64,
    pub absent: u64,
}

/// Frequency of an event that never happens.
pub const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub struct Node {
    /// Nodes of one model return equal outputs for equal inputs.
    pub model: u64,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    pub decoupled: bool,
    pub in_order: bool,
}

/// Responses of a model: an optional hash per output, or an error.
pub type Answers = Vec<Result<Vec<Option<u64>>, String>>;

impl Node {
    pub fn behaviour(&self, inputs: &[Option<u64>], mood: Mood) -> Answers {
        behaviour(self.model, self.decoupled, self.outputs.len(), inputs, mood)
    }
}

/// Responses of a model with `outputs` outputs to these inputs.
pub fn behaviour(model: u64, decoupled: bool, outputs: usize, inputs: &[Option<u64>], mood: Mood) -> Answers {
    let parts: Vec<u64> = inputs.iter().map(|i| i.unwrap_or(1)).collect();
    let seed = hash(&[model, hash(&parts)]);
    let mut random = Random(seed);
    let answers = if decoupled { random.below(4) } else { u64::from(!random.one_in(mood.silent)) };
    let mut all = vec![];
    for answer in 0..answers {
        if random.one_in(mood.fails) {
            all.push(Err(format!("failure {model} {seed:x} {answer}")));
        } else {
            let outputs = 0..outputs as u64;
            all.push(Ok(outputs.map(|o| (!random.one_in(mood.absent)).then(|| hash(&[seed, answer, o]))).collect()));
        }
    }
    all
}

pub struct Graph {
    pub nodes: Vec<Node>,
    /// Scope of each tensor. Each decoupled step begins a scope.
    pub scopes: Vec<usize>,
    /// Parent of each scope.
    pub parents: Vec<usize>,
    pub inputs: usize,
    pub outputs: Vec<usize>,
}

impl Graph {
    pub fn new(random: &mut Random) -> Self {
        let inputs = 1 + random.below(3) as usize;
        let mut graph = Self { nodes: vec![], scopes: vec![0; inputs], parents: vec![0], inputs, outputs: vec![] };
        for _ in 0..1 + random.below(STEPS_MAX) {
            // Tensors of the last steps make deep graphs, other tensors make wide ones.
            let near = graph.scopes.len() - 1 - random.below(graph.scopes.len().min(4) as u64) as usize;
            let first = if random.one_in(3) { random.below(graph.scopes.len() as u64) as usize } else { near };
            let scope = graph.scopes[first];
            let same: Vec<usize> = (0..graph.scopes.len()).filter(|&t| graph.scopes[t] == scope).collect();
            let mut taken = vec![first];
            for _ in 0..random.below(3) {
                taken.push(*random.pick(&same));
            }
            let decoupled = graph.depth(scope) < CHAIN_MAX && random.one_in(6);
            let mut into = scope;
            if decoupled {
                into = graph.parents.len();
                graph.parents.push(scope);
            }
            let outputs: Vec<usize> = (0..1 + random.below(3) as usize).map(|i| graph.scopes.len() + i).collect();
            graph.scopes.extend(outputs.iter().map(|_| into));
            let model = graph.nodes.len() as u64;
            graph.nodes.push(Node { model, inputs: taken, outputs, decoupled, in_order: random.one_in(4) });
        }
        let scope = graph.scopes[graph.scopes.len() - 1 - random.below(3).min(graph.scopes.len() as u64 - 1) as usize];
        let same: Vec<usize> = (0..graph.scopes.len()).filter(|&t| graph.scopes[t] == scope).collect();
        let outputs: BTreeSet<usize> = (0..1 + random.below(4)).map(|_| *random.pick(&same)).collect();
        graph.outputs = outputs.into_iter().collect();
        graph
    }

    pub fn depth(&self, scope: usize) -> usize {
        if scope == 0 { 0 } else { 1 + self.depth(self.parents[scope]) }
    }
}

/// The interpreter. A tensor with value `None` is absent; a tensor that is not in the map was never produced.
pub struct Interpreter<'a> {
    graph: &'a Graph,
    mood: Mood,
    wanted: &'a [usize],
    needed: Vec<bool>,
    pub answers: Vec<Vec<Option<u64>>>,
    pub failures: BTreeSet<String>,
}

/// Computes the responses and failures of a request for `wanted` with these inputs.
pub fn interpret<'a>(graph: &'a Graph, mood: Mood, wanted: &'a [usize], inputs: &[Option<u64>]) -> Interpreter<'a> {
    let needed = needed(graph, wanted);
    let mut all = Interpreter { graph, mood, wanted, needed, answers: vec![], failures: BTreeSet::new() };
    all.run(inputs.iter().copied().enumerate().collect());
    all
}

impl Interpreter<'_> {
    /// Runs one iteration of a scope: all steps that can run, and the iterations of its decoupled steps.
    fn run(&mut self, mut tensors: BTreeMap<usize, Option<u64>>) {
        let graph = self.graph;
        let mut done = BTreeSet::new();
        loop {
            let ready = (0..graph.nodes.len()).find(|n| {
                let present = graph.nodes[*n].inputs.iter().all(|t| tensors.contains_key(t));
                self.needed[*n] && present && !done.contains(n)
            });
            let Some(node) = ready else { break };
            done.insert(node);
            let Node { inputs, outputs, decoupled, .. } = &graph.nodes[node];
            let inputs: Vec<_> = inputs.iter().map(|t| tensors[t]).collect();
            for answer in graph.nodes[node].behaviour(&inputs, self.mood) {
                match answer {
                    Err(text) => drop(self.failures.insert(text)),
                    Ok(given) => {
                        let given: Vec<_> = outputs.iter().copied().zip(given).collect();
                        if !decoupled {
                            tensors.extend(given);
                        } else if given.iter().any(|(_, value)| value.is_some()) {
                            self.run(given.into_iter().collect());
                        }
                    }
                }
            }
        }
        if self.wanted.iter().all(|t| tensors.contains_key(t)) {
            self.answers.push(self.wanted.iter().map(|t| tensors[t]).collect());
        }
    }
}

fn needed(graph: &Graph, wanted: &[usize]) -> Vec<bool> {
    let mut tensors: BTreeSet<usize> = wanted.iter().copied().collect();
    let mut needed = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate().rev() {
        if node.outputs.iter().any(|t| tensors.contains(t)) {
            needed[n] = true;
            tensors.extend(&node.inputs);
        }
    }
    needed
}
