/**
 * Stands for Kubernetes before a picker, for objects that do not change: answers discovery, lists and watches. It
 * checks nothing and keeps nothing.
 */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Yaml } from '../manifests.js'

const RESOURCES = [
  { prefix: '/api/v1', apiVersion: 'v1', name: 'pods', kind: 'Pod' },
  {
    prefix: '/apis/inference.networking.k8s.io/v1',
    apiVersion: 'inference.networking.k8s.io/v1',
    name: 'inferencepools',
    kind: 'InferencePool',
  },
]

/** The end of a watch's first events, which clients of Kubernetes 1.35 wait for. */
const bookmark = (apiVersion: string, kind: string): Yaml => ({
  type: 'BOOKMARK',
  object: {
    apiVersion,
    kind,
    metadata: { resourceVersion: '1', annotations: { 'k8s.io/initial-events-end': 'true' } },
  },
})

/** Serves objects of one namespace, of the kinds of the table above. */
export async function serveCluster(namespace: string, manifests: Yaml[]): Promise<{ url: string; close: () => void }> {
  const objects = manifests.map((object, i) => ({
    ...object,
    metadata: { ...object.metadata, namespace, uid: `object-${i}`, resourceVersion: '1', generation: 1 },
  }))
  const send = (response: ServerResponse, status: number, body: Yaml): void => {
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
  }
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://cluster')
    const groups = [{ name: 'inference.networking.k8s.io', versions: ['v1'] }].map(({ name, versions }) => {
      const each = versions.map((version) => ({ groupVersion: `${name}/${version}`, version }))
      return { name, versions: each, preferredVersion: each[0] }
    })
    if (pathname === '/api') return send(response, 200, { kind: 'APIVersions', versions: ['v1'] })
    if (pathname === '/apis') return send(response, 200, { kind: 'APIGroupList', apiVersion: 'v1', groups })
    const resource = RESOURCES.find(({ prefix }) => pathname.startsWith(prefix))
    if (resource === undefined) return send(response, 404, { kind: 'Status', status: 'Failure', code: 404 })
    const { prefix, apiVersion, name, kind } = resource
    if (pathname === prefix) {
      const resources = [{ name, kind, namespaced: true, singularName: '', verbs: ['get', 'list', 'watch'] }]
      return send(response, 200, { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: apiVersion, resources })
    }
    const items = objects.filter((object) => object.kind === kind)
    if (searchParams.get('watch') !== 'true')
      return send(response, 200, { kind: `${kind}List`, apiVersion, metadata: { resourceVersion: '1' }, items })
    response.writeHead(200, { 'Content-Type': 'application/json' })
    const first = searchParams.get('sendInitialEvents') === 'true'
    const events = first ? [...items.map((object) => ({ type: 'ADDED', object })), bookmark(apiVersion, kind)] : []
    response.write(events.map((event) => `${JSON.stringify(event)}\n`).join(''))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}
