/**
 * Which npm package brings the native module for a platform, and what to tell the user when none was found. Pure.
 *
 * A package holds the module and the libonnxruntime it was built for, for one platform; `scripts/package` makes them. npm installs the one that
 * fits, since all are optional dependencies of `nereid`. Nothing is downloaded at run time.
 */

/** By platform and architecture, as Node names them. Those of Linux need glibc, at least `GLIBC_MIN`. */
const PACKAGES = new Map([
  ['linux-x64', '@nereid/linux-x64-gnu'],
  ['linux-arm64', '@nereid/linux-arm64-gnu'],
  ['darwin-arm64', '@nereid/darwin-arm64'],
])

/** The oldest C library that the packages for Linux load with. */
export const GLIBC_MIN = '2.28'

/** The package for a platform; null when there is none. */
export function platformPackage(platform: string, arch: string): string | null {
  return PACKAGES.get(`${platform}-${arch}`) ?? null
}

/** File names of the module in `native/` of a clone, best first. glibc before musl: on a system with both, Node itself is glibc. */
export function nativeFileNames(platform: string, arch: string): string[] {
  if (platform === 'linux') return [`nereid.linux-${arch}-gnu.node`, `nereid.linux-${arch}-musl.node`]
  return [`nereid.${platform}-${arch}.node`]
}

/** The system on which the module was looked for. */
export interface Host {
  platform: string
  arch: string
  /** Version of glibc, such as `2.36`; null where the C library is another one. Means nothing outside Linux. */
  glibc: string | null
  /** The clone that this program runs from; null where it is a package. */
  clone: string | null
}

/** Why no native module could be loaded: what was looked for, with what was found instead, and what to do on this system. */
export function noModuleText(host: Host, version: string, tried: readonly string[]): string {
  return `the native core can not be loaded on ${host.platform}-${host.arch}: ${tried.join('; ')}. ${advice(host, version)}`
}

function advice({ platform, arch, glibc, clone }: Host, version: string): string {
  if (platform === 'linux' && glibc === null) {
    return (
      'This system has no glibc (Alpine has musl instead), and ONNX Runtime needs it: use an image with glibc, ' +
      'such as node:22-slim, debian:12-slim, ubuntu:24.04 or redhat/ubi9'
    )
  }
  if (platform === 'linux' && glibc !== null && older(glibc, GLIBC_MIN)) {
    return `This system has glibc ${glibc}, and ${GLIBC_MIN} or newer is needed: use an image such as node:22-slim, debian:12-slim or redhat/ubi9`
  }
  if (clone !== null) return `Build it with: npm start (in ${clone})`
  const name = platformPackage(platform, arch)
  if (name === null) return `There are packages for ${[...PACKAGES.keys()].join(', ')}; elsewhere a clone may be built with: npm start`
  return `Install it with: npm install ${name}@${version} (npm leaves it out with --omit=optional), or from its file of npm run package`
}

function older(version: string, than: string): boolean {
  const [a, b] = [version, than].map((v) => v.split('.').map(Number))
  for (const [i, part] of (b ?? []).entries()) {
    const has = a?.[i] ?? 0
    if (has !== part) return has < part
  }
  return false
}
