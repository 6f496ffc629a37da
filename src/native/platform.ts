/**
 * Names the npm package of the native module for a platform, and explains what to do when no module was found.
 *
 * A package holds the module and the libonnxruntime it was built for, for one platform; `scripts/package` makes them.
 * All are optional dependencies of `nereid`, so npm installs the one that fits. Nothing is downloaded at run time.
 */

/** Packages by Node's names of platform and architecture. On Linux they need glibc, at least `GLIBC_MIN`. */
const PACKAGES = new Map([
  ['linux-x64', '@nereid/linux-x64-gnu'],
  ['linux-arm64', '@nereid/linux-arm64-gnu'],
  ['darwin-arm64', '@nereid/darwin-arm64'],
])

/** The oldest glibc that the packages for Linux support. */
export const GLIBC_MIN = '2.28'

/** The package for a platform; null when there is none. */
export function platformPackage(platform: string, arch: string): string | null {
  return PACKAGES.get(`${platform}-${arch}`) ?? null
}

/** File names of the module in `native/` of a clone, best first: if both libc exist, Node itself uses glibc. */
export function nativeFileNames(platform: string, arch: string): string[] {
  if (platform === 'linux') return [`nereid.linux-${arch}-gnu.node`, `nereid.linux-${arch}-musl.node`]
  return [`nereid.${platform}-${arch}.node`]
}

/** The system on which the module was searched. */
export interface Host {
  platform: string
  arch: string
  /** Version of glibc, such as `2.36`; null with another C library. Only for Linux. */
  glibc: string | null
  /** Root of the clone that this program runs from; null for a package. */
  clone: string | null
}

/** Explains why no native module could be loaded: what was tried, and what to do on this system. */
export function noModuleText(host: Host, version: string, tried: readonly string[]): string {
  const problem = `the native core can not be loaded on ${host.platform}-${host.arch}: ${tried.join('; ')}`
  return `${problem}. ${advice(host, version)}`
}

function advice({ platform, arch, glibc, clone }: Host, version: string): string {
  if (platform === 'linux' && glibc === null) {
    return (
      'This system has no glibc (Alpine has musl instead), and ONNX Runtime needs it: use an image with glibc, ' +
      'such as node:22-slim, debian:12-slim, ubuntu:24.04 or redhat/ubi9'
    )
  }
  if (platform === 'linux' && glibc !== null && older(glibc, GLIBC_MIN)) {
    const images = 'node:22-slim, debian:12-slim or redhat/ubi9'
    return `This system has glibc ${glibc}, and ${GLIBC_MIN} or newer is needed: use an image such as ${images}`
  }
  if (clone !== null) return `Build it with: npm start (in ${clone})`
  const name = platformPackage(platform, arch)
  if (name === null)
    return `There are packages for ${[...PACKAGES.keys()].join(', ')}; elsewhere a clone may be built with: npm start`
  const other = 'npm leaves it out with --omit=optional), or from its file of npm run package'
  return `Install it with: npm install ${name}@${version} (${other}`
}

function older(version: string, than: string): boolean {
  const [a, b] = [version, than].map((v) => v.split('.').map(Number))
  for (const [i, part] of (b ?? []).entries()) {
    const has = a?.[i] ?? 0
    if (has !== part) return has < part
  }
  return false
}
