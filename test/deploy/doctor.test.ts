/** `nereid doctor` over the manifests of docs/deploy: they need no change, and start as they are written. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as doctor from '../../src/tools/doctor/index.js'
import { runs } from '../commands/harness.js'
import { DEPLOY, PODS, filesOf, flagsOf, type Pod, type Yaml } from './manifests.js'

/** The flags of a pod; the directory of a volume is the one on the machine, if that is known. */
function flagsOnHost(pod: Pod): string[] {
  const mounts: Yaml[] = pod.spec.containers[0].volumeMounts
  const hostPath = ({ name }: Yaml): string | undefined =>
    pod.spec.volumes.find((volume: Yaml) => volume.name === name).hostPath?.path
  return flagsOf(pod).map((flag) => {
    const mount = mounts.find((one) => flag.endsWith(`=${one.mountPath}`))
    const path = mount === undefined ? undefined : hostPath(mount)
    return path === undefined ? flag : flag.replace(/=.*/, `=${path}`)
  })
}

test.each(['kubernetes', 'kserve'].flatMap(filesOf))('%s needs no change and starts as it is', async (path) => {
  const { code, out } = await runs(doctor, ['--format=json', join(DEPLOY, path)])
  const { counts, commands, diffs } = JSON.parse(out) as {
    counts: Record<string, number>
    commands: { command: string[] }[]
    diffs: string[]
  }
  expect([code, counts, diffs]).toEqual([0, expect.objectContaining({ change: 0, impossible: 0 }), []])
  const pods = PODS.filter(({ name }) => name.startsWith(`${path},`))
  expect(commands.map(({ command }) => command)).toEqual(pods.map((pod) => ['nereid', ...flagsOnHost(pod)]))
})
