/** The files of docs/deploy, as the tests look at them. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'

export const DEPLOY = fileURLToPath(new URL('../../docs/deploy', import.meta.url))

/**
 * A map of YAML. Kubernetes' own checks are those of the suite `helm` of test/heavy; here a field that is not there is
 * undefined.
 */
// oxlint-disable-next-line typescript/no-explicit-any
export type Yaml = any

export interface Pod {
  /** `kubernetes/x.yaml, Deployment x`. */
  name: string
  kind: string
  spec: Yaml
  /** All objects of its file. */
  beside: Yaml[]
}

/** Objects of a file. @throws with what is wrong, with names that are given twice too */
export function objectsOf(text: string): Yaml[] {
  return parseAllDocuments(text)
    .map((document) => {
      const [error] = document.errors
      if (error !== undefined) throw error
      return document.toJS() as Yaml
    })
    .filter((object) => object !== null)
}

export function filesOf(directory: string): string[] {
  return readdirSync(join(DEPLOY, directory))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => `${directory}/${name}`)
}

export const readFile = (path: string): string => readFileSync(join(DEPLOY, path), 'utf8')

/** Pods that manifests describe. */
export function podsOf(path: string): Pod[] {
  const objects = objectsOf(readFile(path))
  return objects.flatMap((object) => {
    const spec = object.spec?.template?.spec ?? (object.spec?.containers === undefined ? undefined : object.spec)
    return spec === undefined
      ? []
      : [
          {
            name: `${path}, ${object.kind} ${object.metadata.name}`,
            kind: object.kind as string,
            spec,
            beside: objects,
          },
        ]
  })
}

export const PODS: Pod[] = ['kubernetes', 'kserve'].flatMap(filesOf).flatMap(podsOf)

/** The command line of the server in a pod, behind `tritonserver`. */
export function flagsOf(pod: Pod): string[] {
  const [container] = pod.spec.containers
  const [program, ...flags] = [...(container.command ?? []), ...(container.args ?? [])] as string[]
  if (program !== 'tritonserver') throw new Error(`${pod.name} starts ${program}`)
  return flags
}
