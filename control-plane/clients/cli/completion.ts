import { Argument, type Command } from 'commander';
import { commandAt } from './from-operations.ts';
import type { Session } from './session.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** Adds `keyfence completion`. */
export function completionCommand(program: Command, session: Session): void {
  const help = 'print the completion for a shell, such as: eval "$(keyfence completion bash)"';
  commandAt(program, 'completion', help, ['completion fish'])
    .addArgument(new Argument('<shell>', 'which').choices(SHELLS))
    .action((shell: (typeof SHELLS)[number]) => {
      const script = { bash, zsh, fish }[shell](program);
      session.print({ script }, () => script);
    });
}

/** Lists each command, as it is typed behind `keyfence`, with the words that may follow it. */
function candidates(command: Command, path = ''): [path: string, words: string][] {
  const options = command.options.flatMap(({ long }) => (long ? [long] : []));
  const choices = command.registeredArguments[0]?.argChoices ?? [];
  const everywhere = path === '' ? [] : ['--json'];
  const words = [
    ...command.commands.map((child) => child.name()),
    ...choices,
    ...options,
    ...everywhere,
    '--help',
  ];
  return [
    [path, words.join(' ')],
    ...command.commands.flatMap((child) => candidates(child, `${path} ${child.name()}`)),
  ];
}

/** Returns branches of a `case` on the words typed so far, the longest first. */
const cases = (program: Command, then: (words: string) => string) =>
  candidates(program)
    .toSorted(([a], [b]) => b.length - a.length)
    .map(([path, words]) => `    "${path} "*) ${then(words)} ;;`)
    .join('\n');

const bash = (program: Command) => `_keyfence() {
  local at="" word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do [[ $word == -* ]] || at+=" $word"; done
  case "$at " in
${cases(program, (words) => `COMPREPLY=($(compgen -W "${words}" -- "\${COMP_WORDS[COMP_CWORD]}"))`)}
  esac
}
complete -o default -F _keyfence keyfence`;

const zsh = (program: Command) => `#compdef keyfence
_keyfence() {
  local at="" word
  for word in "\${(@)words[2,CURRENT-1]}"; do [[ $word == -* ]] || at+=" $word"; done
  case "$at " in
${cases(program, (words) => `compadd -- ${words} || _files`)}
  esac
}
compdef _keyfence keyfence`;

/** Fish offers files too, after these words. */
const fish = (program: Command) => `function __keyfence_words
  set -l at ""
  for word in (commandline -opc)[2..-1]
    string match -q -- "-*" $word; or set at "$at $word"
  end
  switch "$at "
${candidates(program)
  .toSorted(([a], [b]) => b.length - a.length)
  .map(([path, words]) => `    case "${path} *"\n      string split " " -- "${words}"`)
  .join('\n')}
  end
end
complete -c keyfence -a "(__keyfence_words)"`;
