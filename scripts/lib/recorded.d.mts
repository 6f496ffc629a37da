export function timeSentence(seconds: { all: number; setup: number }): string
export function pageOfTimes(root: string): string
