# Judges examples by a model's JSON export alone, as docs/format.md says: perl foreign_reader.pl EXPORT < EXAMPLES
# An example a line, as JSON. Prints log p(x, c) and log p(c | x), by class. A text is words with spaces between.
use strict; use warnings; use experimental 'signatures';
use JSON::PP; use List::Util qw(any max min sum sum0); use POSIX qw(asinh lgamma log1p);
my ($INF, $PI) = (9**9**9, atan2(0, -1));
my $model = decode_json(do { local (@ARGV, $/) = $ARGV[0]; <> });
die 'another format' if $model->{format} ne 'streamnb export' || $model->{version} > 2;
my @classes = 0 .. $#{ $model->{classes} };
my %terms = (words => \&words, bag => \&words, flags => \&flags, categories => \&categories, numbers => \&numbers);
sub rows($table) { map { my $i = $_; +{ map { $_ => $table->{$_}[$i] } keys %$table } } 0 .. $#{ (values %$table)[0] } }
sub total(@rows) { map { my $c = $_; sum0 map { $_->[$c] // -$INF } @rows } @classes }  # null is log 0
sub log_sum(@logs) { my $top = max -$INF, @logs; $top == -$INF ? $top : $top + log sum map { exp($_ - $top) } @logs }
sub normalised(@logs) { my $all = log_sum(@logs); map { $_ - $all } @logs }
sub words($group, $x, $spec, @rows) {
    my ($value, %times) = $x->{ $spec->{field} // $group->{name} };
    $value = { %$x{ @{ $spec->{fields} || [keys %$x] } } } if $group->{kind} eq 'bag' && !defined $spec->{field};
    $times{$_} += ref $value ? $value->{$_} // 0 : 1 for ref $value ? keys %$value : split ' ', $value // return;
    my @absent = map { [map { $_ ? undef : 0 } @$_] } $group->{is_void} // ();
    return @absent, map { $_->{ $times{ $_->{word} } ? 'log_theta' : 'log_absent' } } @rows if @absent;
    %times = map { $_ => min($times{$_}, 1) } keys %times if ($spec->{counts} // '') eq 'presence';
    @rows = grep { $times{ $_->{word} } && (!$group->{word_weights} || any { $_ } @{ $_->{count} }) } @rows;
    my $n = sum0 map { $times{ $_->{word} } } @rows;
    @rows = map { my $r = $_; [map { $_ && $_ * $times{ $r->{word} } } @{ $r->{score} || $r->{log_theta} }] } @rows;
    return $group->{word_weights} ? [map { $_ / ($n + 1)**0.75 } total(@rows)] : @rows;
}
sub flags($group, $x, $spec, @rows) {
    my @values = map { $x->{ $_->{field} } // ($spec->{absent_is_false} ? 0 : undef) } @rows;
    return map { $rows[$_]{ $values[$_] ? 'log_true' : 'log_false' } } grep { defined $values[$_] } 0 .. $#rows;
}
sub categories($group, $x, $spec, @rows) {
    my %known = map { ("$_->{field}\0$_->{value}" => $_->{log_theta}) } @rows;
    return grep { $_ } map { $known{"$_\0$x->{$_}"} || $group->{log_unseen}{$_} } grep { defined $x->{$_} } keys %$x;
}
sub numbers($group, $x, $spec, @rows) {
    return map { my $row = $_; [map { my $c = $_;
        my ($v, $df, $s2) = map { $_ && $_->[$c] } @$row{qw(variance df scale_squared)};
        my $d = $x->{ $row->{field} } - ($row->{location}[$c] // 0);
        $v ? -(log(2 * $PI * $v) + $d * $d / $v) / 2 : !$df ? ($d == 0 ? 0 : undef) : lgamma(($df + 1) / 2)
            - lgamma($df / 2) - log($PI * $df * $s2) / 2 - ($df + 1) / 2 * log1p($d * $d / ($df * $s2));
    } @classes] } grep { defined $x->{ $_->{field} } } @rows;
}
sub terms($group, $x, $u = $group->{weight}) {
    my @sums = total($terms{ $group->{kind} }->($group, $x, $group->{specification}, rows($group->{table})));
    return [map { $_ == -$INF || !defined $u ? $_ : $u * max($_ - max(@sums), -10) } @sums];
}
sub calibrated($at, $curve, @logs) {
    return normalised(map { my $c = $_;
        my $odds = asinh($logs[$c] - log_sum(@logs[grep { $_ != $c } @classes]));
        my $i = (grep { $at->[$_] <= $odds } 0 .. $#$at - 1)[-1] // 0;
        my $share = max(0, min(1, ($odds - $at->[$i]) / ($at->[$i + 1] - $at->[$i])));
        -log1p(exp(-($curve->[$i] + $share * ($curve->[$i + 1] - $curve->[$i]))));
    } @classes);
}
for my $x (map { decode_json($_) } <STDIN>) {
    my @prior = total($model->{class_prior}{log_prior});
    my @joint = total(\@prior, map { terms($_, $x) } @{ $model->{groups} });
    my @logs = normalised(max(@joint) == -$INF ? @prior : @joint);
    @logs = calibrated(@{ $model->{calibration} }{qw(scaled_odds log_odds)}, @logs) if $model->{calibration};
    print encode_json([map { [map { $_ == -$INF ? undef : $_ } @$_] } \@joint, \@logs]), "\n";
}
