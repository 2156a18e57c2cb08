#!/usr/bin/perl
# Judges examples by a model's JSON export alone, as docs/format.md says; it knows nothing else.
#   foreign_reader.pl EXPORT < EXAMPLES    One example a line, as JSON. Prints what it says of each:
#   log p(x, c) and log p(c | x), by class. A text is taken to be words with spaces between.
use strict; use warnings;
use JSON::PP; use List::Util qw(any max min sum sum0); use POSIX qw(asinh lgamma log1p);
my ($INF, $PI) = (9**9**9, atan2(0, -1));
open my $file, '<:raw', $ARGV[0] or die "$ARGV[0]: $!";
my $model = decode_json(do { local $/; <$file> });
die "another format" if $model->{format} ne 'streamnb export' || $model->{version} > 2;
my @classes = 0 .. $#{ $model->{classes} };
my %terms = (words => \&words, bag => \&words, flags => \&flags, categories => \&categories, numbers => \&numbers);

sub logs { map { $_ // -$INF } @{ $_[0] } }  # null is the logarithm of zero
sub total { my @terms = map { [logs($_)] } @_; map { my $c = $_; sum0 map { $_->[$c] } @terms } @classes }
sub log_sum { my $best = max @_; $best == -$INF ? $best : $best + log sum map { exp($_ - $best) } @_ }
sub words {
    my ($group, $x, $spec, $table) = @_;
    my $value = $x->{ $spec->{field} // $group->{name} };
    $value = { map { $_ => $x->{$_} } @{ $spec->{fields} || [keys %$x] } } if $group->{kind} eq 'bag' && !defined $spec->{field};
    return unless defined $value;
    my (%times, $n, @found);
    if (ref $value) { %times = %$value } else { $times{$_}++ for split ' ', $value }
    for my $i (0 .. $#{ $table->{word} }) {
        my $times = $times{ $table->{word}[$i] } || 0;
        if ($table->{log_absent}) { push @found, $table->{ $times ? 'log_theta' : 'log_absent' }[$i]; next }
        next if !$times || $group->{word_weights} && !any { $_ } @{ $table->{count}[$i] };
        $times = 1 if ($spec->{counts} // '') eq 'presence';
        $n += $times;
        push @found, [map { $times * $_ } logs(($table->{score} || $table->{log_theta})->[$i])];
    }
    push @found, [map { $_ ? undef : 0 } @{ $group->{is_void} }] if $group->{is_void};
    return $group->{word_weights} && $n ? [map { $_ / ($n + 1)**0.75 } total(@found)] : @found;
}
sub flags {
    my ($group, $x, $spec, $table) = @_;
    my @values = map { $x->{$_} // ($spec->{absent_is_false} ? 0 : undef) } @{ $table->{field} };
    return map { $table->{ $values[$_] ? 'log_true' : 'log_false' }[$_] } grep { defined $values[$_] } 0 .. $#values;
}
sub categories {
    my ($group, $x, $spec, $table) = @_;
    my %rows = map { ("$table->{field}[$_]\0$table->{value}[$_]" => $table->{log_theta}[$_]) } 0 .. $#{ $table->{field} };
    my %fields = map { $_ => 1 } @{ $table->{field} };
    return grep { $_ } map { $rows{"$_\0$x->{$_}"} || $group->{log_unseen}{$_} } grep { defined $x->{$_} } keys %fields;
}
sub numbers {
    my ($group, $x, $spec, $table) = @_;
    return map { my $i = $_; [map { density($group->{density}, $x->{ $table->{field}[$i] }, $i, $_, $table) } @classes] }
        grep { defined $x->{ $table->{field}[$_] } } 0 .. $#{ $table->{field} };
}
sub density {
    my ($density, $value, $i, $c, $table) = @_;
    my ($d, $v, $df, $s2) = ($value - ($table->{location}[$i][$c] // 0), map { $table->{$_} && $table->{$_}[$i][$c] } qw(variance df scale_squared));
    return lgamma(($df + 1) / 2) - lgamma($df / 2) - log($PI * $df * $s2) / 2 - ($df + 1) / 2 * log1p($d * $d / ($df * $s2)) if $density eq 'student_t';
    return $v ? -(log(2 * $PI * $v) + $d * $d / $v) / 2 : $d == 0 ? 0 : undef;
}
sub weighted {  # what a group says, no class further than 10 from the best
    my ($weight, @sums) = @_;
    my $best = max(@sums);
    return map { $_ == -$INF ? $_ : $weight * max($_ - $best, -10) } @sums;
}
sub calibrated {
    my ($at, $curve, @logs) = (@{ $_[0] }{qw(scaled_odds log_odds)}, @_[1 .. $#_]);
    return @logs if @logs < 2;
    my @found = map { my $c = $_;
        my $odds = asinh(max(-1000, min(1000, $logs[$c] - log_sum(@logs[grep { $_ != $c } @classes]))));
        my $i = (grep { $at->[$_] <= $odds } 0 .. $#$at - 1)[-1] // 0;
        my $share = max(0, min(1, ($odds - $at->[$i]) / ($at->[$i + 1] - $at->[$i])));
        -log1p(exp(-($curve->[$i] + $share * ($curve->[$i + 1] - $curve->[$i]))));
    } @classes;
    my $all = log_sum(@found);
    return map { $_ - $all } @found;
}
while (my $line = <STDIN>) {
    my $x = decode_json($line);
    my @joint = logs($model->{class_prior}{log_prior});
    for my $group (@{ $model->{groups} }) {
        my @sums = total($terms{ $group->{kind} }->($group, $x, @$group{qw(specification table)}));
        @sums = weighted($group->{weight}, @sums) if defined $group->{weight};
        $joint[$_] += $sums[$_] for @classes;
    }
    my @known = max(@joint) == -$INF ? logs($model->{class_prior}{log_prior}) : @joint;
    my $all = log_sum(@known);
    my @posterior = map { $_ - $all } @known;
    @posterior = calibrated($model->{calibration}, @posterior) if $model->{calibration};
    print '[', join(',', map { '[' . join(',', map { $_ == -$INF ? 'null' : sprintf '%.17g', $_ } @$_) . ']' } \@joint, \@posterior), "]\n";
}
