import { type ParseArgsConfig, parseArgs } from 'node:util';

/**
 * Parses the arguments of a script that people run. With `--help` it prints `usage` and ends the process with
 * status 0; wrong arguments end the process with the reason, `usage` and status 2.
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

/** Ends a script with wrong arguments: prints the reason and `usage`, and exits with status 2. */
export function wrongArguments(reason: string, usage: string): never {
  console.error(`${reason}\n\n${usage}`);
  process.exit(2);
}

/** Parses the number of an option; ends the script if it is not a number, or below `min`. */
export function numberArgument(option: string, text: string, min: number, usage: string): number {
  const number = Number(text);
  if (text.trim() === '' || !Number.isFinite(number) || number < min)
    wrongArguments(`--${option}: a number from ${min} up`, usage);
  return number;
}
