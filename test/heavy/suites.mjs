/**
 * The heavy suites: those that want another machine's emulator, a container tool or an hour. One file each; a new one
 * is a line here.
 */
import { arm64 } from './arm64.mjs'
import { azure } from './azure.mjs'
import { batching } from './batching.mjs'
import { bundle } from './bundle.mjs'
import { chat } from './chat.mjs'
import { chatEngines } from './chat_engines.mjs'
import { cluster } from './cluster.mjs'
import { envoy } from './envoy.mjs'
import { fil } from './fil.mjs'
import { frameworks } from './frameworks.mjs'
import { fuzz } from './fuzz.mjs'
import { gcs } from './gcs.mjs'
import { helm } from './helm.mjs'
import { image } from './image.mjs'
import { kserve } from './kserve.mjs'
import { optimize } from './optimize.mjs'
import { pictures } from './pictures.mjs'
import { prometheus } from './prometheus.mjs'
import { pytriton } from './pytriton.mjs'
import { ray } from './ray.mjs'
import { release } from './release.mjs'
import { s3 } from './s3.mjs'
import { sequences } from './sequences.mjs'
import { text } from './text.mjs'
import { torchscript } from './torchscript.mjs'
import { tutorials } from './tutorials.mjs'
import { uws } from './uws.mjs'
import { vllm } from './vllm.mjs'

/**
 * name → `{ about, missing, notRun, steps, run, isPart }`: `notRun()`, where there is one, says why nobody can expect
 * it to run as it was called, null when it can; `isPart()`, where there is one, says that it was called for a part of
 * what it does, whose result is not written to test/heavy/RESULTS.md; `about` is a line for people; `missing()`
 * resolves with what is not here, each with the command that gets it; `steps` are the steps of set-up that it wants,
 * all without it; `run(checks, commit)` does the work, and resolves with what was measured, in a line for
 * test/heavy/RESULTS.md.
 */
export const SUITES = {
  arm64,
  azure,
  batching,
  bundle,
  chat,
  chat_engines: chatEngines,
  cluster,
  envoy,
  fil,
  frameworks,
  fuzz,
  gcs,
  helm,
  image,
  kserve,
  optimize,
  pictures,
  prometheus,
  pytriton,
  ray,
  release,
  s3,
  sequences,
  text,
  torchscript,
  tutorials,
  uws,
  vllm,
}
