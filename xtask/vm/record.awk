# A record as lines of `path value`, so that a shell without a JSON parser can look things up. It relies on how Overdrive
# writes JSON: one value, bracket or brace a line.

function path(  level, text) {
    for (level = 1; level <= depth; level++) text = text (level > 1 ? "." : "") names[level]
    return text
}

{
    line = $0
    sub(/^ +/, "", line)
    sub(/,$/, "", line)
    if (line ~ /^[]}]$/) { depth--; next }
    if (NR == 1) next # the brace around everything, which the last line takes back to -1
    if (is_list[depth]) name = entries[depth]++
    else {
        match(line, /^"[^"]*": /)
        name = substr(line, 2, RLENGTH - 4)
        line = substr(line, RLENGTH + 1)
    }
    names[depth + 1] = name
    depth++
    if (line == "{" || line == "[") {
        is_list[depth] = line == "["
        entries[depth] = 0
        next
    }
    gsub(/^"|"$/, "", line)
    print path() " " line
    depth--
}
