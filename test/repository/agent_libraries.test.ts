/** Repository agents that are libraries of Triton's C API: what they are told, and where they move models. */

import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { nativePath } from '../../src/native/index.js'
import { writeTestRepositories } from '../models/generate.mjs'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-agent-libraries-'))
const AGENTS = join(ROOT, 'agents')
const MODELS = join(ROOT, 'models')
const EVENTS = join(ROOT, 'events')
const NOTED = join(ROOT, 'noted')
const INCLUDE = join(import.meta.dirname, '../../shm/include')
const hasHost = process.platform === 'linux' && existsSync(join(dirname(nativePath()), 'nereid-backend-host'))

/** Notes each call; parameter `do` says what happens in action LOAD. */
const SOURCE = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "triton/core/tritonrepoagent.h"
static void note(const char *what, const char *who) {
  FILE *f = fopen(${JSON.stringify(EVENTS)}, "a");
  fprintf(f, "%s %s\\n", what, who);
  fclose(f);
}
static const char *parameter(TRITONREPOAGENT_Agent *a, TRITONREPOAGENT_AgentModel *m) {
  const char *name, *value = "";
  TRITONREPOAGENT_ModelParameter(a, m, 0, &name, &value);
  return value;
}
TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *a) { (void)a; note("initialize", ""); return NULL; }
TRITONSERVER_Error *TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent *a) { (void)a; note("finalize", ""); return NULL; }
TRITONSERVER_Error *TRITONREPOAGENT_ModelFinalize(TRITONREPOAGENT_Agent *a, TRITONREPOAGENT_AgentModel *m) {
  note("end", parameter(a, m));
  return NULL;
}
TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *a, TRITONREPOAGENT_AgentModel *m, const TRITONREPOAGENT_ActionType action) {
  static const char *names[] = {"load", "loaded", "failed", "unload", "unloaded"};
  const char *what = parameter(a, m), *from, *to;
  TRITONREPOAGENT_ArtifactType type;
  char command[4096];
  note(names[action], what);
  if (action != TRITONREPOAGENT_ACTION_LOAD) return NULL;
  if (!strcmp(what, "refuse")) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "not this model");
  if (!strcmp(what, "crash")) abort();
  if (!strcmp(what, "nowhere"))
    return TRITONREPOAGENT_ModelRepositoryUpdate(a, m, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, what);
  if (strcmp(what, "move")) return NULL;
  TRITONREPOAGENT_ModelRepositoryLocation(a, m, &type, &from);
  TRITONREPOAGENT_ModelRepositoryLocationAcquire(a, m, type, &to);
  snprintf(command, sizeof command, "cp -r '%s'/* '%s' && rm -r '%s'/1/hidden", from, to, to);
  if (system(command)) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "cp");
  return TRITONREPOAGENT_ModelRepositoryUpdate(a, m, type, to);
}
`

/** A model that answers with the process that it runs in. Notes its end if the file NOTED exists when it is loaded. */
const SCRIPT = `
import { appendFileSync, existsSync } from 'node:fs'
import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'
export default defineModel({
  inputs: { IN: { datatype: 'INT32', dims: [1] } }, outputs: { OUT: { datatype: 'INT32', dims: [1] } },
  execute: (requests) => requests.map(() =>
    new InferenceResponse([Tensor.from('OUT', new Int32Array([process.pid]), [1], 'INT32')])),
  finalize: existsSync(${JSON.stringify(NOTED)})
    ? () => appendFileSync(${JSON.stringify(EVENTS)}, 'the model ends\\n') : () => {},
})
`

/** Expects these events since the last time. */
async function expectEvents(...expected: string[]): Promise<void> {
  const read = (): string[] => (existsSync(EVENTS) ? readFileSync(EVENTS, 'utf8') : '').trim().split(/ *\n/)
  await expect.poll(read).toEqual(expected)
  rmSync(EVENTS)
}

beforeAll(() => {
  if (!hasHost) return
  writeTestRepositories(ROOT)
  mkdirSync(join(AGENTS, 'mover'), { recursive: true })
  const stub = join(ROOT, 'libtritonserver.so')
  const cc = (input: string, ...args: string[]) =>
    execFileSync('cc', ['-shared', '-fPIC', `-I${INCLUDE}`, '-x', 'c', '-', '-x', 'none', ...args], { input })
  cc('typedef int unused;', '-Wl,-soname,libtritonserver.so', '-o', stub)
  cc(SOURCE, '-Wl,--no-as-needed', stub, '-o', join(AGENTS, 'mover/libtritonrepoagent_mover.so'))
  for (const what of ['move', 'refuse', 'crash', 'stay', 'nowhere']) {
    const agent = `{ name: "mover" parameters { key: "do" value: "${what}" } }`
    cpSync(join(ROOT, 'small/simple/1'), join(MODELS, what, '1'), { recursive: true })
    writeFileSync(join(MODELS, what, '1/hidden'), '')
    writeFileSync(join(MODELS, what, 'config.pbtxt'), `model_repository_agents { agents [ ${agent} ] }`)
  }
  mkdirSync(join(MODELS, 'script/1'), { recursive: true })
  writeFileSync(join(MODELS, 'script/1/hidden'), '')
  writeFileSync(join(MODELS, 'script/1/model.ts'), SCRIPT)
  const mover = '{ name: "mover" parameters { key: "do" value: "move" } }'
  const config = `backend: "javascript" model_repository_agents { agents [ ${mover} ] }`
  writeFileSync(join(MODELS, 'script/config.pbtxt'), config)
})
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

test.runIf(hasHost)('R-46: an agent library moves a model, and is told of its load and unload', async () => {
  const server = await Server.start({
    modelRepository: MODELS,
    modelControlMode: 'explicit',
    repoagentDirectory: AGENTS,
    hostUser: 'root',
    log: () => {},
  })
  try {
    await server.load('move')
    expect(server.index().filter(({ state }) => state === 'READY')).toMatchObject([{ name: 'move' }])
    await expectEvents('initialize', 'load move', 'loaded move')
    await server.unload('move')
    await expectEvents('unload move', 'unloaded move', 'end move', 'finalize')

    // The agent may still change the code.
    await server.load('script')
    const answer = await server.model('script').infer({ inputs: { IN: new Int32Array(1) } })
    expect(answer.output('OUT').data[0]).not.toBe(process.pid)
    await server.unload('script')
    await expectEvents('initialize', 'load move', 'loaded move', 'unload move', 'unloaded move', 'end move', 'finalize')

    await expect(server.load('refuse')).rejects.toThrow(/failed to poll from model repository/)
    await expectEvents('initialize', 'load refuse', 'failed refuse', 'end refuse', 'finalize')

    await expect(server.load('nowhere')).rejects.toThrow(/failed to poll from model repository/)
    await expectEvents('initialize', 'load nowhere', 'failed nowhere', 'end nowhere', 'finalize')

    // A library that aborts ends its own process only, and the next load starts another one.
    await server.load('stay')
    await expect(server.load('crash')).rejects.toThrow(/failed to poll from model repository/)
    await expectEvents('initialize', 'load stay', 'loaded stay', 'load crash')
    writeFileSync(NOTED, '')
    await server.load('script')
    await expectEvents('initialize', 'load move', 'loaded move')
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
  // Told before the model ends, as in Triton.
  await expectEvents('unload move', 'the model ends', 'unloaded move', 'end move', 'finalize')
})
