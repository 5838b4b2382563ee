import { type ParseArgsConfig, parseArgs } from 'node:util';

/**
 * Reads the arguments of a script that people run. With `--help` it prints `usage` and ends the process with status
 * 0; wrong arguments end it with the reason, `usage` and status 2.
 */
export function scriptArguments<const T extends ParseArgsConfig>(usage: string, config: T) {
  const options = { help: { type: 'boolean', short: 'h' }, ...config.options } as const;
  let result: ReturnType<typeof parseArgs<T>>;
  try {
    result = parseArgs({ ...config, options }) as ReturnType<typeof parseArgs<T>>;
  } catch (error) {
    return wrongArguments(error instanceof Error ? error.message : String(error), usage);
  }
  if ((result.values as { help?: boolean }).help) {
    console.log(usage);
    process.exit(0);
  }
  return result;
}

/** Ends a script whose arguments cannot be used, with the reason, how it is used, and status 2. */
export function wrongArguments(reason: string, usage: string): never {
  console.error(`${reason}\n\n${usage}`);
  process.exit(2);
}

/** Reads a number of an option; ends the script where it is none, or below `min`. */
export function numberArgument(option: string, text: string, min: number, usage: string): number {
  const number = Number(text);
  if (text.trim() === '' || !Number.isFinite(number) || number < min)
    wrongArguments(`--${option}: a number from ${min} up`, usage);
  return number;
}
