#!/usr/bin/env bash
# Rebuilds what is generated: from proto/ Rust messages and descriptors for crates/protocol and TypeScript for src/config, tables for client; docs/limits.md from
# the rows of test/attacks; from shm/protocol.json the constants of the runner protocol for Rust, C and Python; from shm/include the
# functions of Triton's C API that crates/backend-host does not define; from crates/scheduler the causes for which batches begin; from src/console the page; from crates/node the declarations of the native module.
# With --check nothing is written; fails when what is committed differs from what would be generated. Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

rust=crates/protocol/src/pb
typescript=src/config/generated
client=client/src/grpc/generated
native=src/native/generated/index.ts

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# `npm test` has compiled it like its tests. By itself it has other features, and its dependencies are compiled again.
generator=${PROTOCOL_GEN:-}
if [[ -z $generator ]]; then
  cargo build --quiet --locked --workspace --bin nereid-protocol-gen
  generator=${CARGO_TARGET_DIR:-target}/debug/nereid-protocol-gen
fi
"$generator" proto "$work/rust" "$work/commented.bin"
node scripts/generate-typescript.mjs "$work/commented.bin" "$work/$typescript" model_config.proto
node scripts/generate-client.mjs "$work/commented.bin" "$work/$client/schema.ts"
node scripts/generate-declarations.mjs "$work/native.ts"

if [[ "${1:-}" == --check ]]; then
  # mod.rs is written by hand and lives beside the generated files.
  diff -r --exclude=mod.rs "$work/rust" "$rust" && diff -r "$work/$typescript" "$typescript" && diff -r "$work/$client" "$client" && diff "$work/native.ts" "$native" || {
    echo "generated files differ from proto/ or crates/node: run scripts/generate.sh and commit the result" >&2
    exit 1
  }
  node test/attacks/docs.mjs --check
  node scripts/generate-runner.mjs --check
  node scripts/generate-causes.mjs --check
  node scripts/generate-console.mjs --check
  node scripts/generate-triton-stubs.mjs --check
else
  cp "$work/rust"/* "$rust/"
  cp "$work/$typescript"/*.ts "$typescript/"
  cp "$work/$client"/*.ts "$client/"
  cp "$work/native.ts" "$native"
  node test/attacks/docs.mjs
  node scripts/generate-runner.mjs
  node scripts/generate-causes.mjs
  node scripts/generate-console.mjs
  node scripts/generate-triton-stubs.mjs
fi
