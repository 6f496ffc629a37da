/** An Envoy that asks a picker at one port, as a gateway does, and gives servers their turns at another. */
import type { Yaml } from '../manifests.js'

const LISTENERS = 'type.googleapis.com/envoy.extensions.filters'
const address = (host: string, port: number): Yaml => ({ socket_address: { address: host, port_value: port } })
const endpoints = (name: string, hosts: readonly string[], port: number): Yaml => {
  const each = hosts.map((host) => ({ endpoint: { address: address(host, port) } }))
  return { cluster_name: name, endpoints: [{ lb_endpoints: each }] }
}

/** A port of 127.0.0.1 whose requests pass these filters and reach a cluster. */
function listener(port: number, cluster: string, filters: Yaml[]): Yaml {
  const router = { name: 'router', typed_config: { '@type': `${LISTENERS}.http.router.v3.Router` } }
  const routes = [{ match: { prefix: '/' }, route: { cluster, timeout: '0s' } }]
  const manager = {
    '@type': `${LISTENERS}.network.http_connection_manager.v3.HttpConnectionManager`,
    stat_prefix: cluster,
    route_config: { virtual_hosts: [{ name: cluster, domains: ['*'], routes }] },
    http_filters: [...filters, router],
  }
  const chain = { filters: [{ name: 'http', typed_config: manager }] }
  return { name: cluster, address: address('127.0.0.1', port), filter_chains: [chain] }
}

export function envoyConfig(
  ports: { admin: number; byPicker: number; byTurns: number; picker: number; http: number },
  hosts: readonly string[],
): Yaml {
  const modes = ['request', 'response'].flatMap((side) => [
    [`${side}_header_mode`, 'SEND'],
    [`${side}_body_mode`, 'FULL_DUPLEX_STREAMED'],
    [`${side}_trailer_mode`, 'SEND'],
  ])
  const asks = {
    name: 'ext_proc',
    typed_config: {
      '@type': `${LISTENERS}.http.ext_proc.v3.ExternalProcessor`,
      grpc_service: { envoy_grpc: { cluster_name: 'picker' }, timeout: '10s' },
      processing_mode: Object.fromEntries(modes),
      message_timeout: '10s',
    },
  }
  const http2 = {
    'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
      '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
      explicit_http_config: { http2_protocol_options: {} },
    },
  }
  return {
    admin: { address: address('127.0.0.1', ports.admin) },
    static_resources: {
      listeners: [listener(ports.byPicker, 'picked', [asks]), listener(ports.byTurns, 'turns', [])],
      clusters: [
        {
          name: 'picked',
          type: 'ORIGINAL_DST',
          lb_policy: 'CLUSTER_PROVIDED',
          original_dst_lb_config: { use_http_header: true, http_header_name: 'x-gateway-destination-endpoint' },
        },
        {
          name: 'turns',
          type: 'STATIC',
          lb_policy: 'ROUND_ROBIN',
          load_assignment: endpoints('turns', hosts, ports.http),
        },
        {
          name: 'picker',
          type: 'STATIC',
          typed_extension_protocol_options: http2,
          load_assignment: endpoints('picker', ['127.0.0.1'], ports.picker),
        },
      ],
    },
  }
}
