/** The byte that `downloader.ts` repeats: another one for each model, because equal contents are kept once. */
export const fillOf = (path: string): number => 8 * path.charCodeAt(0) + Number(path.charAt(1))
